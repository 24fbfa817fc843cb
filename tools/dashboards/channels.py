"""What came in, and from where."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Board, Panel, Row, rate_by

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
