"""Who may speak where, as Feishu's events tell it."""

from __future__ import annotations

from typing import Any, Final

from gateway.channels.feishu.parse import FeishuEventParser, FeishuIdentity
from gateway.channels.feishu.wire import CardPressed, FeishuEvent, MessageReceived, read_event
from gateway.platform.protocol import PlatformMessage
from tests.gateway.channels.feishu.events import APP_ID, BOT, mention, message, pressed
from tests.helpers.access_table import Ids, Situation

IDS: Final = Ids(
    "feishu",
    {
        "listed": "ou_1isted", "admin": "ou_admin", "paired": "ou_paired", "stranger": "ou_stranger",
        "member": "ou_member", "bot": "ou_0ther", "self": BOT, "nobody": "",
    },
    {"listed": "oc_1isted", "narrow": "oc_narrow", "open": "oc_0pen", "off": "oc_0ff", "other": "oc_0ther"},
)  # fmt: skip

HEARING: Final = FeishuEventParser(IDS.channel, FeishuIdentity(APP_ID, BOT))


def can_be(situation: Situation) -> bool:
    """Apps are told of no edits; a press of our button is for us, and is a person's; a file, or what is passed on, is a
    message of its own kind, which mentions nobody."""
    if situation.entry == "edited":
        return False
    if situation.entry == "pressed":
        return situation.person not in ("bot", "self", "nobody") and (not situation.group or situation.addressed)
    return situation.entry not in ("file", "forwarded") or not situation.group or not situation.addressed


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender = IDS.people[situation.person]
    chat = IDS.groups[situation.group] if situation.group else f"oc_a1one{situation.person}"
    if situation.entry == "pressed":
        value = {"shoal": "/yes", "chat": chat, "thread": "", "group": "1" if situation.group else ""}
        by = {"open_id": sender, "union_id": "on_1", "user_id": IDS.people["listed"]}
        event = read_event(pressed(value, operator=by, context={"open_message_id": "om_1", "open_chat_id": chat}))
        assert isinstance(event, FeishuEvent)
        assert isinstance(event.event, CardPressed)
        return HEARING.parse_press(event.header, event.event, now_ms=1)
    kind, content, more = "text", _text(situation, words), dict[str, Any]()
    if situation.group and situation.addressed:
        more["mentions"] = [mention(1, "Shoal", BOT)]
    if situation.entry == "file":
        kind, content = "file", {"file_key": "file_1", "file_name": "note.txt"}
    if situation.entry == "forwarded":
        kind, content = "merge_forward", {"content": "Merged and Forwarded Message"}
    by_app = situation.person in ("bot", "self", "nobody")
    event = read_event(
        message(
            content, kind, sender=sender, sender_type="app" if by_app else "user", message_id=f"om_{nth}", chat_id=chat,
            chat_type="group" if situation.group else "p2p", **more,
        )
    )  # fmt: skip
    assert isinstance(event, FeishuEvent)
    assert isinstance(event.event, MessageReceived)
    asked = HEARING.parse_message(event.header, event.event, now_ms=1)
    return asked.message if asked is not None else None


def _text(situation: Situation, words: str | None) -> dict[str, str]:
    words = words or {"command": "/help"}.get(situation.entry, "hello")
    return {"text": f"@_user_1 {words}" if situation.group and situation.addressed else words}
