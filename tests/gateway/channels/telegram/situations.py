"""Who may speak where, as Telegram's updates tell it."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.channels.telegram.parse import TelegramIdentity, parse_update
from gateway.channels.telegram.wire import decode_update
from gateway.platform.protocol import PlatformMessage
from tests.helpers.access_table import Ids, Situation

ME: Final = TelegramIdentity(123456789, "shoal_bot")

IDS: Final = Ids(
    "telegram",
    {
        "listed": "11", "admin": "12", "paired": "13", "stranger": "14", "member": "15", "bot": "16",
        "self": str(ME.id), "nobody": "1087968824",
    },
    {"listed": "-11", "narrow": "-12", "open": "-13", "off": "-14", "other": "-15"},
)  # fmt: skip


def can_be(situation: Situation) -> bool:
    """A command, or a press of our button, is always for us; and nobody presses their own."""
    if situation.entry == "pressed" and situation.person == "self":
        return False
    return not situation.group or situation.addressed or situation.entry not in ("command", "pressed")


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender = int(IDS.people[situation.person])
    chat = (
        {"id": int(IDS.groups[situation.group]), "type": "supergroup"}
        if situation.group
        else {"id": sender, "type": "private"}
    )
    words = words or {"command": "/help", "pressed": "/yes", "file": ""}.get(situation.entry, "hello")
    user = {"id": sender, "is_bot": situation.person == "bot", "first_name": situation.called or "Mallory"}
    sent: dict[str, Any] = {"chat": chat, "from": user, "text": words, "message_id": 6 + nth, "date": 1_700_000_000}
    if situation.group and situation.addressed and situation.entry != "command":
        sent |= {"text": f"@shoal_bot {words}", "entities": [{"type": "mention", "offset": 0, "length": 10}]}
    if situation.entry == "forwarded":
        sent["forward_origin"] = {"type": "user", "sender_user": {"id": int(IDS.people["listed"])}, "date": 1}
    if situation.entry == "file":
        sent["document"] = {"file_id": "f", "file_name": "note.txt"}
        sent["caption"], sent["caption_entities"] = sent.pop("text"), sent.pop("entities", [])
    kind, event = "message", sent
    if situation.entry == "pressed":
        on = {"message_id": 9, "date": 1, "chat": chat}
        kind, event = "callback_query", {"id": f"c{nth}", "from": user, "message": on, "data": words}
    if situation.entry == "edited":
        kind, event = "edited_message", {**sent, "edit_date": 1_700_000_005}
    return parse_update(IDS.channel, decode_update(json.dumps({"update_id": nth, kind: event}).encode()), ME)
