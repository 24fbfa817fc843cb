"""What came in, from where, and what went out."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Board, Panel, Query, Row, newest, rate_by, slow_by

CHANNELS: Final = Board(
    "shoal-channels",
    "Shoal: channels",
    "What came in, from where, and what went out to platforms.",
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
                    "Ignored",
                    "ops",
                    rate_by("shoal_messages_ignored_total", "channel", "reason"),
                    "Not meant for us, or from somebody who may not speak.",
                ),
                Panel(
                    "Withdrawn",
                    "ops",
                    rate_by("shoal_messages_withdrawn_total", "channel"),
                    "Taken back while they waited.",
                ),
                Panel(
                    "Ratings of answers",
                    "ops",
                    rate_by("shoal_answers_rated_total", "rating"),
                    "On the page: `up`, `down`, and `none` for one that was taken back.",
                ),
                Panel(
                    "Commands",
                    "ops",
                    rate_by("shoal_commands_total", "channel", "command"),
                    "Answered by gateways, past the line.",
                ),
                Panel(
                    "Webhooks",
                    "ops",
                    rate_by("shoal_webhooks_total", "direction", "outcome"),
                    "Calls of programs, and calls to programs, by what came of them.",
                ),
            ),
        ),
        Row(
            "Deliveries",
            (
                Panel(
                    "Connected",
                    "short",
                    newest("shoal_channel_on", "channel"),
                    "1 while at least one gateway is connected to the platform.",
                ),
                Panel(
                    "Chats that wait",
                    "short",
                    newest("shoal_outbox_waiting", "channel"),
                    "Something is ready for them and not delivered yet.",
                ),
                Panel(
                    "Oldest waits",
                    "s",
                    newest("shoal_outbox_oldest_seconds", "channel"),
                    "How long the oldest of what is ready was not delivered.",
                ),
                Panel(
                    "Delivered", "ops", rate_by("shoal_deliveries_total", "channel", "outcome"), "By what came of it."
                ),
                Panel(
                    "Time to delivery",
                    "s",
                    slow_by("shoal_delivery_seconds", "channel"),
                    "95 % of what was delivered took less, from when it was ready.",
                ),
                Panel(
                    "Calls",
                    "ops",
                    rate_by("shoal_delivery_calls_total", "channel", "outcome"),
                    "What the platforms' APIs said.",
                ),
                Panel(
                    "Sent again",
                    "short",
                    (
                        Query(
                            "sum by (channel) (shoal:delivery_unknown:increase15m) "
                            "or sum by (channel) (increase(shoal_delivery_not_found_total[15m]))",
                            "{{channel}}",
                        ),
                    ),
                    "In 15 minutes, without knowing whether the first time arrived, or after a look-up that did not "
                    "find it: some may be there twice.",
                ),
                Panel(
                    "Failed later",
                    "short",
                    (Query("sum by (channel) (shoal:delivery_failed_later:increase15m)", "{{channel}}"),),
                    "In 15 minutes: the platform took them, and said afterwards that it could not deliver them.",
                ),
            ),
        ),
    ),
)
