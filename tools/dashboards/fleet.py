"""What people notice, and why: the dashboard to look at first."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Board, Panel, Query, Row, newest, number, rate_by, spread

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
