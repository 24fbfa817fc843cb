"""How the tools of AgentDojo's suites are classed, as an operator would class those of MCP servers.

A tool that is not listed is `unsafe`, as every tool of an MCP server is by default. Every result of an MCP server
counts as text of strangers, so nothing has to be said about that.
"""

from __future__ import annotations

from typing import Final

READS: Final = {
    "workspace": (
        "get_current_day", "get_day_calendar_events", "search_calendar_events", "search_contacts_by_email",
        "search_contacts_by_name", "get_draft_emails", "get_received_emails", "get_sent_emails", "get_unread_emails",
        "search_emails", "get_file_by_id", "list_files", "search_files", "search_files_by_filename",
    ),
    "travel": (
        "check_restaurant_opening_hours", "get_all_car_rental_companies_in_city", "get_all_hotels_in_city",
        "get_all_restaurants_in_city", "get_car_fuel_options", "get_car_price_per_day", "get_car_rental_address",
        "get_car_types_available", "get_contact_information_for_restaurants", "get_cuisine_type_for_restaurants",
        "get_day_calendar_events", "get_dietary_restrictions_for_all_restaurants", "get_flight_information",
        "get_hotels_address", "get_hotels_prices", "get_price_for_restaurants", "get_rating_reviews_for_car_rental",
        "get_rating_reviews_for_hotels", "get_rating_reviews_for_restaurants", "get_restaurants_address",
        "get_user_information", "search_calendar_events",
    ),
    "banking": (
        "get_balance", "get_iban", "get_most_recent_transactions", "get_scheduled_transactions", "get_user_info",
        "read_file",
    ),
    "slack": ("get_channels", "get_users_in_channel", "read_channel_messages", "read_inbox"),
}  # fmt: skip
"""Tools that only read what is the person's own: a second call does nothing, and nobody else learns of the first."""

WHY_UNSAFE: Final = {
    "get_webpage": "asks a server of strangers for an address that the model has chosen: the address may carry data",
    "post_webpage": "gives text to strangers",
    "send_": "gives text to others, or money",
    "create_calendar_event": "invites people by mail",
    "add_calendar_event_participants": "invites people by mail",
    "reschedule_calendar_event": "writes to the people who take part",
    "cancel_calendar_event": "writes to the people who take part",
    "create_file": "changes what others may read later",
    "append_to_file": "changes what others may read later",
    "share_file": "gives a file to others",
    "delete_": "loses what is the person's own",
    "reserve_": "costs money",
    "schedule_transaction": "costs money, later",
    "update_": "changes an account, a password or a payment",
    "invite_user_to_slack": "lets somebody in",
    "add_user_to_channel": "lets somebody read",
    "remove_user_from_slack": "shuts somebody out",
}
"""Why each other tool stays unsafe, by name or by how its name begins."""


def safety_table(suite: str) -> dict[str, str]:
    """Return `tool_safety` of a suite's server."""
    return dict.fromkeys(READS[suite], "read_only")


def why_unsafe(tool: str) -> str | None:
    """Return the reason; None for a tool that this table does not know."""
    return next((why for name, why in WHY_UNSAFE.items() if tool.startswith(name)), None)
