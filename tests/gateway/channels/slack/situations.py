"""Who may speak where, as Slack tells it."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.platform.protocol import PlatformMessage
from shared.messages.inbound import InboundMessage
from tests.gateway.channels.slack.payloads import FORM, ME, callback, changed, form, message, press, received, slash
from tests.helpers.access_table import Ids, Situation

IDS: Final = Ids(
    "slack",
    {
        "listed": "U11", "admin": "U12", "paired": "U13", "stranger": "U14", "member": "U15", "bot": "U16",
        "self": ME.user_id, "nobody": "",
    },
    {"listed": "C11", "narrow": "C12", "open": "C13", "off": "C14", "other": "C15"},
)  # fmt: skip

FILE: Final = {"id": "F1", "name": "note.txt", "mode": "hosted", "url_private": "https://files.slack.com/F1"}


def can_be(situation: Situation) -> bool:
    """Bots press no buttons and give no commands, and both are always meant for us."""
    if situation.entry in ("pressed", "command"):
        return situation.person not in ("bot", "self") and (not situation.group or situation.addressed)
    return True


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    found = _parse(situation, words or "hello", nth)
    assert not isinstance(found, InboundMessage)
    return found


def _parse(situation: Situation, words: str, nth: int) -> PlatformMessage | InboundMessage | None:
    sender = IDS.people[situation.person]
    chat = IDS.groups[situation.group] if situation.group else f"D0{sender}"
    about: dict[str, Any] = {"channel": chat, "user": sender or None, "username": situation.called or "Mallory"}
    about |= {"user_profile": {"display_name": situation.called, "real_name": IDS.people["listed"]}}
    about |= {"ts": f"1695223200.{nth:06}"}
    if situation.person == "bot":
        about["bot_id"] = "B16"
    if situation.person == "nobody":
        about |= {"subtype": "bot_message", "bot_id": "B17"}
    text = f"<@{ME.user_id}> {words}" if situation.group and situation.addressed else words
    match situation.entry:
        case "pressed":
            by = {"id": sender, "name": situation.called, "username": IDS.people["listed"]}
            where = {"message_ts": "1695223250.000150", "channel_id": chat}
            pressed = press(user=by, container=where, channel={"id": chat})
            return received(form({"payload": json.dumps(pressed)}), FORM)
        case "command":
            called = situation.called or IDS.people["listed"]
            given = slash(channel_id=chat, user_id=sender, user_name=called, text=words, trigger_id=f"1.{nth}")
            return received(form(given), FORM)
        case "edited":
            after = message(text, edited={"user": IDS.people["listed"], "ts": "1695223300.000000"}, **about)
            return received(callback(changed(after, message("old", **about), chat)))
        case "forwarded":
            passed_on = {"is_share": True, "author_id": IDS.people["listed"], "author_name": "listed", "text": "fish"}
            return received(callback(message(text, attachments=[passed_on], **about)))
        case "file":
            return received(callback(message(text, files=[FILE], **{"subtype": "file_share", **about})))
        case _:
            return received(callback(message(text, **about)))
