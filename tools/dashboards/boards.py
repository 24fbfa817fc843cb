"""The dashboards. What people notice stands first; docs/metrics.md says what each metric means."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import RATE, Board, Panel, Query, Row, newest, number, rate_by, slow_by, spread

OF_SHOAL: Final = "and on (instance, job) shoal_build_info"
TURNS: Final = '{queue="turns"}'

FLEET: Final = Board(
    "shoal-fleet",
    "Shoal: the fleet",
    "What people notice, then why.",
    (
        Row(
            "People",
            (
                number(
                    "Answered in time",
                    "percentunit",
                    "1 - shoal:answers_late:ratio_rate1h",
                    "Answers of the last hour that came within a minute; what could not be answered counts as late.",
                    warn=0.95,
                    bad=0.9,
                ),
                number(
                    "Begun in time",
                    "percentunit",
                    "1 - shoal:turns_wait:ratio_rate1h",
                    "Turns of the last hour that a worker took within five seconds.",
                    warn=0.99,
                    bad=0.95,
                ),
                number(
                    "Oldest waits",
                    "s",
                    f"max(shoal_queue_oldest_due_seconds{TURNS})",
                    "How long the first in the line waits for a worker.",
                    warn=5,
                    bad=30,
                ),
                number("Waiting", "short", f"max(shoal_queue_due{TURNS})", "Chats that a worker may take now."),
                number("Running", "short", f"max(shoal_queue_running{TURNS})", "Chats that a worker answers now."),
                number(
                    "Dead letters, 24 h",
                    "short",
                    "sum(shoal:dead_letters:increase1d) or vector(0)",
                    "Messages that got an apology instead of an answer: `shoal dead list`.",
                    warn=1,
                    bad=20,
                ),
                Panel(
                    "From message to answer",
                    "s",
                    spread("shoal_answer_seconds"),
                    "The whole wait of a person. What still waits is not in it.",
                    width=12,
                ),
                Panel(
                    "From claim to first text",
                    "s",
                    spread("shoal_first_token_seconds"),
                    "When something appears, after a worker took the turn: mostly the model.",
                    width=12,
                ),
                Panel("Wait for a worker", "s", spread("shoal_queue_wait_seconds", TURNS), "Mostly our own doing."),
                Panel("One turn", "s", spread("shoal_turn_seconds"), "One try of one worker, whatever its end."),
                Panel(
                    "Share of late answers",
                    "percentunit",
                    tuple(Query(f"shoal:answers_late:ratio_rate{w}", w) for w in ("5m", "1h", "6h")),
                    "What the alerts look at; 5 % is what may be late in the long run.",
                ),
            ),
        ),
        Row(
            "Ends",
            (
                Panel(
                    "Answers",
                    "ops",
                    rate_by("shoal_answer_seconds_count", "outcome"),
                    "Done, stopped by the person, or failed with an apology.",
                ),
                Panel(
                    "Turns that went wrong",
                    "ops",
                    rate_by("shoal_turns_total", "outcome", selector='{outcome!~"done|stopped|released"}'),
                    "Also those that are tried again.",
                ),
                Panel(
                    "Dead letters by reason",
                    "short",
                    (Query("shoal:dead_letters:increase15m", "{{reason}}"),),
                    "In 15 minutes.",
                ),
            ),
        ),
        Row(
            "Line",
            (
                Panel(
                    "Messages",
                    "ops",
                    (
                        *(Query(one.expr, "accepted") for one in rate_by("shoal_messages_accepted_total")),
                        *(Query(one.expr, "joined a turn") for one in rate_by("shoal_messages_joined_total")),
                    ),
                    "What came in.",
                ),
                Panel(
                    "Due and running",
                    "short",
                    (
                        *(Query(one.expr, "{{queue}} due") for one in newest("shoal_queue_due", "queue")),
                        *(Query(one.expr, "{{queue}} running") for one in newest("shoal_queue_running", "queue")),
                    ),
                    "As Redis has it.",
                ),
                Panel(
                    "Oldest due", "s", newest("shoal_queue_oldest_due_seconds", "queue"), "What autoscaling looks at."
                ),
                Panel(
                    "Gateways and workers", "short", newest("shoal_processes", "kind"), "That say they live.", width=12
                ),
                Panel(
                    "Releases",
                    "short",
                    (Query("count by (version) (shoal_build_info)", "{{version}}"),),
                    "Two while a release is rolled out.",
                    width=12,
                ),
            ),
        ),
    ),
)

WORKERS: Final = Board(
    "shoal-workers",
    "Shoal: workers",
    "Leases, tools and processes.",
    (
        Row(
            "Turns",
            (
                Panel("Running", "short", (Query("shoal_turns_running", "{{instance}}"),), "In each process."),
                Panel(
                    "Ends of turns",
                    "ops",
                    rate_by("shoal_turns_total", "outcome"),
                    "`released` is a drain or a border.",
                ),
                Panel(
                    "Taken over",
                    "short",
                    (Query("shoal:turn_takeovers:increase15m", "{{cause}}"),),
                    "In 15 minutes: `crash` is a worker that died, `lapsed` a lease that ran out.",
                ),
                Panel(
                    "Lost leases",
                    "ops",
                    rate_by("shoal_stale_writes_refused_total"),
                    "Turns whose lease was gone when they ended: the fence at work, or a `/new`.",
                ),
                Panel(
                    "Late renewals", "ops", rate_by("shoal_lease_renew_late_total"), "Redis or the event loop was slow."
                ),
                Panel(
                    "History dropped",
                    "ops",
                    rate_by("shoal_history_dropped_total"),
                    "Entries of conversations that grew too long before they were consolidated.",
                ),
            ),
        ),
        Row(
            "Tools and background work",
            (
                Panel("Tool calls", "ops", rate_by("shoal_tool_calls_total", "tool", "outcome"), "By tool and end."),
                Panel("Slow tools", "s", slow_by("shoal_tool_seconds", "tool"), "95 % were quicker."),
                Panel(
                    "Wait of jobs",
                    "s",
                    spread("shoal_queue_wait_seconds", '{queue="jobs"}'),
                    "Subagents, memory, schedules.",
                ),
                Panel("Subagents", "ops", rate_by("shoal_subagents_total", "outcome"), "By end."),
                Panel(
                    "Subagents' results dropped",
                    "ops",
                    rate_by("shoal_subagent_results_dropped_total"),
                    "Their conversation was over.",
                ),
                Panel(
                    "Memory",
                    "ops",
                    rate_by("shoal_consolidations_total", "outcome"),
                    "`raw` and `put_off`: no model could sum a piece up.",
                ),
                Panel(
                    "Schedules",
                    "ops",
                    rate_by("shoal_schedules_fired_total", "outcome"),
                    "Ticks, by what came of them.",
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Event loop late",
                    "s",
                    slow_by("shoal_event_loop_lag_seconds", "instance"),
                    "95 % of timers were less late. Leases are renewed by this loop.",
                ),
                Panel(
                    "CPU",
                    "percentunit",
                    (Query(f"rate(process_cpu_seconds_total[{RATE}]) {OF_SHOAL}", "{{instance}}"),),
                    "Of one core.",
                ),
                Panel(
                    "Memory in use",
                    "bytes",
                    (Query(f"process_resident_memory_bytes {OF_SHOAL}", "{{instance}}"),),
                    "Resident.",
                ),
                Panel(
                    "Open files",
                    "percentunit",
                    (Query(f"process_open_fds / process_max_fds {OF_SHOAL}", "{{instance}}"),),
                    "Of what the process may open.",
                ),
                Panel(
                    "Up for",
                    "s",
                    (Query(f"time() - process_start_time_seconds {OF_SHOAL}", "{{instance}}"),),
                    "A saw is a process that dies again and again.",
                ),
            ),
        ),
    ),
)

MODELS: Final = Board(
    "shoal-models",
    "Shoal: models and cost",
    "What models were asked, what they took, what they cost.",
    (
        Row(
            "Calls",
            (
                number(
                    "Failed, last hour",
                    "percentunit",
                    "shoal:model_failures:ratio_rate1h",
                    "Calls that failed after their retries and fallbacks.",
                    warn=0.02,
                    bad=0.2,
                ),
                number(
                    "Cost, last 24 h",
                    "currencyUSD",
                    "sum(increase(shoal_model_cost_usd_total[1d]))",
                    "As far as prices are known.",
                ),
                Panel(
                    "Calls",
                    "ops",
                    rate_by("shoal_model_requests_total", "model", "outcome"),
                    "Once each, whatever was retried.",
                    width=16,
                ),
                Panel(
                    "Slow calls", "s", slow_by("shoal_model_seconds", "model"), "95 % were quicker, to the last token."
                ),
                Panel(
                    "Held back",
                    "ops",
                    rate_by("shoal_model_throttled_total", "model", "reason"),
                    "`rate_limit` and `overloaded`: the breaker is open for the whole fleet.",
                ),
                Panel(
                    "Budgets reached",
                    "ops",
                    rate_by("shoal_budgets_reached_total", "budget"),
                    "Turns that ended because their chat had used its day.",
                ),
            ),
        ),
        Row(
            "Use",
            (
                Panel(
                    "Tokens", "short", rate_by("shoal_model_tokens_total", "model", "direction"), "A second.", width=12
                ),
                Panel(
                    "Cost an hour",
                    "currencyUSD",
                    (Query(f"3600 * sum by (model) (rate(shoal_model_cost_usd_total[{RATE}]))", "{{model}}"),),
                    "At the present pace. A model without a known price has no line.",
                    width=12,
                ),
            ),
        ),
    ),
)

REDIS: Final = Board(
    "shoal-redis",
    "Shoal: Redis",
    "As Shoal sees its one store.",
    (
        Row(
            "Server",
            (
                number("Answers", "short", "min(shoal_redis_up)", "1 when it answered every process.", warn=1, bad=0.5),
                number(
                    "Writes its log",
                    "short",
                    "min(shoal_redis_writes_ok)",
                    "0: its disk is full or broken, and it refuses writes.",
                    warn=1,
                    bad=0.5,
                ),
                Panel(
                    "Memory",
                    "bytes",
                    (
                        Query("max(shoal_redis_memory_bytes)", "used"),
                        Query("max(shoal_redis_memory_limit_bytes)", "limit (0: none)"),
                    ),
                    "At the limit new messages are refused.",
                    width=16,
                ),
            ),
        ),
        Row(
            "Commands",
            (
                Panel(
                    "How long",
                    "s",
                    spread("shoal_redis_command_seconds"),
                    "On the way and in the server; calls that wait for work apart.",
                ),
                Panel(
                    "How many",
                    "ops",
                    rate_by("shoal_redis_command_seconds_count", "instance"),
                    "Scripts and commands; a pipeline is one.",
                ),
                Panel(
                    "Away and back", "ops", rate_by("shoal_redis_reconnects_total"), "Each process counts for itself."
                ),
            ),
        ),
    ),
)

CHANNELS: Final = Board(
    "shoal-channels",
    "Shoal: channels",
    "What came in, and from where. Deliveries to platforms follow with the channels that need them.",
    (
        Row(
            "Messages",
            (
                Panel("Accepted", "ops", rate_by("shoal_messages_accepted_total", "channel"), "Made durable."),
                Panel(
                    "Refused",
                    "ops",
                    rate_by("shoal_messages_refused_total", "channel", "reason"),
                    "The person was told why.",
                ),
                Panel(
                    "Seen before",
                    "ops",
                    rate_by("shoal_messages_duplicate_total", "channel"),
                    "Sent again by a client or a platform, and answered alike.",
                ),
                Panel(
                    "Withdrawn",
                    "ops",
                    rate_by("shoal_messages_withdrawn_total", "channel"),
                    "Taken back while they waited.",
                ),
                Panel(
                    "Commands",
                    "ops",
                    rate_by("shoal_commands_total", "channel", "command"),
                    "Answered by gateways, past the line.",
                ),
            ),
        ),
    ),
)

BOARDS: Final = (FLEET, WORKERS, MODELS, REDIS, CHANNELS)
