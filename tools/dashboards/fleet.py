"""What people notice, and why: the dashboard to look at first."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Board, Panel, Query, Row, newest, number, rate_by, replace, slow_by, spread

TURNS: Final = '{queue="turns"}'
# Turns of the background have places among those of turns.
TAKEN: Final = 'sum(max by (queue) (shoal_queue_running{queue=~"turns|background"}))'
LOAD: Final = f'({TAKEN} + sum(max by (queue) (shoal_queue_due{{queue=~"turns|background"}})))'
UP_FOR: Final = "(time() - process_start_time_seconds) * on (namespace, instance, job) group_left (version)"

FLEET: Final = Board(
    "shoal-fleet",
    "Shoal: the fleet",
    "What people notice, then why.",
    (
        Row(
            "Now",
            (
                number(
                    "Redis answers",
                    "short",
                    "min(shoal_redis_up)",
                    "1 when it answered every process.",
                    warn=1,
                    bad=0.5,
                    alert="ShoalRedisAway",
                ),
                number(
                    "Redis is full to",
                    "percentunit",
                    "max(shoal_redis_memory_bytes) / max(shoal_redis_memory_limit_bytes > 0)",
                    "Of its maxmemory; at 1 new messages are refused. No data: it has no limit, or does not tell.",
                    warn=0.7,
                    bad=0.9,
                    alert="ShoalRedisMemoryFull",
                ),
                replace(
                    number(
                        "Workers",
                        "short",
                        'max(shoal_processes{kind="worker"})',
                        "Processes that say they live, and workers that would have 70 % of their places in use "
                        "with what runs and waits now: what autoscaling wants.",
                        alert="ShoalNoWorkers",
                    ),
                    queries=(
                        *newest("shoal_processes", selector='{kind="worker"}', legend="there"),
                        Query(f"ceil({LOAD} / (0.7 * max(shoal_worker_places{TURNS})))", "wanted"),
                    ),
                ),
                number(
                    "Places in use",
                    "percentunit",
                    f"{TAKEN} / max(shoal_places{TURNS} > 0)",
                    "Turns that run, of those that all workers may run at once.",
                    warn=0.7,
                    bad=0.95,
                    alert="ShoalOldestTurnWaits",
                ),
                number(
                    "Web sockets",
                    "short",
                    "sum(shoal_web_sockets)",
                    "Open pages of all gateways.",
                    alert="ShoalConnectionsCrowded",
                ),
                number(
                    "Errors of /v1",
                    "percentunit",
                    '(sum(rate(shoal_api_seconds_count{status=~"5.."}[5m]))'
                    " or 0 * sum(rate(shoal_api_seconds_count[5m])))"
                    " / sum(rate(shoal_api_seconds_count[5m]))",
                    "Requests of five minutes that ended with a status of 500 or more.",
                    warn=0.01,
                    bad=0.1,
                ),
                number(
                    "Tokens, 24 h",
                    "short",
                    "sum(increase(shoal_model_tokens_total[1d]))",
                    "In and out. Top spenders: `shoal session spent`.",
                    alert="ShoalBudgetsReached",
                ),
                number(
                    "Cost, 24 h",
                    "currencyUSD",
                    "sum(increase(shoal_model_cost_usd_total[1d]))",
                    "As far as prices are known.",
                    alert="ShoalBudgetsReached",
                ),
                number(
                    "Cost of the budget",
                    "percentunit",
                    "sum(increase(shoal_model_cost_usd_total[1d])) / $budget",
                    "Of what a day may cost, which you set at the top of this page.",
                    warn=0.8,
                    bad=1,
                    alert="ShoalBudgetsReached",
                ),
                number(
                    "Budgets reached, 24 h",
                    "short",
                    "sum(increase(shoal_budgets_reached_total[1d])) or vector(0)",
                    "Turns that ended because their chat had used its day.",
                    alert="ShoalBudgetsReached",
                ),
                replace(
                    number(
                        "Release, up for",
                        "s",
                        "max(process_start_time_seconds)",
                        "The oldest process of each release; two while one is rolled out.",
                        alert="ShoalProcessDies",
                    ),
                    queries=(Query(f"max by (version) ({UP_FOR} shoal_build_info)", "{{version}}"),),
                    width=8,
                ),
            ),
        ),
        Row(
            "People",
            (
                number(
                    "Answered in time",
                    "percentunit",
                    "1 - max(shoal:answers_late:ratio_rate1h)",
                    "Answers of the last hour that came within a minute; what could not be answered counts as late.",
                    warn=0.95,
                    bad=0.9,
                ),
                number(
                    "Begun in time",
                    "percentunit",
                    "1 - max(shoal:turns_wait:ratio_rate1h)",
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
                    tuple(Query(f"max(shoal:answers_late:ratio_rate{w})", w) for w in ("5m", "1h", "6h")),
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
                    (Query("sum by (reason) (shoal:dead_letters:increase15m)", "{{reason}}"),),
                    "In 15 minutes.",
                ),
            ),
        ),
        Row(
            "Line",
            (
                Panel(
                    "Requests of /v1",
                    "ops",
                    rate_by("shoal_api_seconds_count", "status"),
                    "By HTTP status.",
                ),
                Panel(
                    "Slow requests of /v1",
                    "s",
                    slow_by("shoal_api_seconds", "status"),
                    "95 % were quicker, to the end of their answer.",
                ),
                Panel(
                    "Places",
                    "short",
                    (
                        *(Query(one.expr, "{{queue}} there") for one in newest("shoal_places", "queue")),
                        Query(TAKEN, "turns in use"),
                        Query("sum(shoal_turns_running)", "turns in use, by the workers' own count"),
                    ),
                    "Work that may run at once.",
                ),
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
