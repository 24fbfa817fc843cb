"""Who may speak where, as WhatsApp's calls tell it."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.channels.whatsapp.parse import read_call
from gateway.platform.protocol import PlatformMessage
from tests.helpers.access_table import Ids, Situation

NUMBER: Final = "106540352242922"

IDS: Final = Ids(
    "whatsapp",
    {
        "listed": "15550000011", "admin": "15550000012", "paired": "15550000013", "stranger": "15550000014",
        "member": "15550000015", "bot": "15550000016", "self": "15550000017", "nobody": "",
    },
    {"listed": "g-1", "narrow": "g-2", "open": "g-3", "off": "g-4", "other": "g-5"},
)  # fmt: skip


def can_be(situation: Situation) -> bool:
    """There are no groups, no edits, and no messages of other bots or our own."""
    return situation.group is None and situation.entry != "edited" and situation.person not in ("bot", "self", "nobody")


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender = IDS.people[situation.person]
    words = words or {"command": "/help", "pressed": "/yes"}.get(situation.entry, "hello")
    sent: dict[str, Any] = {"type": "text", "text": {"body": words}}
    if situation.entry == "forwarded":
        sent["context"] = {"forwarded": True, "from": IDS.people["listed"]}
    if situation.entry == "file":
        sent = {"type": "document", "document": {"id": "1", "filename": "note.txt"}}
    if situation.entry == "pressed":
        pressed = {"type": "button_reply", "button_reply": {"id": words, "title": "Yes"}}
        sent = {"type": "interactive", "interactive": pressed}
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550783881", "phone_number_id": NUMBER},
        "contacts": [{"profile": {"name": situation.called or "Mallory"}, "wa_id": sender}],
        "messages": [{"from": sender, "id": f"wamid.{nth}", "timestamp": "1749416383", **sent}],
    }
    entry = {"id": "102290129340398", "changes": [{"value": value, "field": "messages"}]}
    call = {"object": "whatsapp_business_account", "entry": [entry]}
    found = read_call(IDS.channel, json.dumps(call).encode(), NUMBER).messages
    return found[0] if found else None
