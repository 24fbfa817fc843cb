"""Who may speak where, as a homeserver tells it."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.channels.matrix.parse import parse_event
from gateway.channels.matrix.wire import EventSummary, read_event
from gateway.platform.protocol import PlatformMessage
from tests.helpers.access_table import Ids, Situation

ME: Final = "@shoal:pond.example"
MXC: Final = "mxc://pond.example/AQwafuaFswefuhsfAFAgsw"

IDS: Final = Ids(
    "matrix",
    {
        "listed": "@listed:p.example", "admin": "@admin:p.example", "paired": "@paired:p.example",
        "stranger": "@stranger:p.example", "member": "@member:p.example", "bot": "@bot:p.example", "self": ME,
        "nobody": "",
    },
    {"listed": "!listed:p.example", "narrow": "!narrow:p.example", "open": "!open:p.example", "off": "!off:p.example",
     "other": "!other:p.example"},
)  # fmt: skip


def can_be(situation: Situation) -> bool:
    """There are no buttons; a command is always for us; a message without a sender says nothing to anybody."""
    if situation.entry == "pressed" or situation.person == "nobody":
        return False
    return not situation.group or situation.addressed or situation.entry != "command"


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender = IDS.people[situation.person]
    room = IDS.groups[situation.group] if situation.group else f"!alone-{situation.person}:p.example"
    content: dict[str, Any] = {"msgtype": "m.notice" if situation.person == "bot" else "m.text"}
    content["body"] = words or {"command": "/help"}.get(situation.entry, "hello")
    if situation.entry == "file" and situation.person != "bot":
        content |= {"msgtype": "m.file", "filename": "note.txt", "url": MXC}
    if situation.entry == "forwarded":  # clients forward by sending the same words again
        content["formatted_body"] = f"<blockquote>{IDS.people['listed']}</blockquote>"
    if situation.group:
        content |= {"m.mentions": {"user_ids": [ME] if situation.addressed else []}}
    first = None
    if situation.entry == "edited":
        relates = {"rel_type": "m.replace", "event_id": "$old"}
        content, first = {**content, "m.new_content": content, "m.relates_to": relates}, EventSummary(sender)
    event = read_event(
        json.dumps(
            {
                "type": "m.room.message", "event_id": f"$event{nth}", "sender": sender, "room_id": room,
                "origin_server_ts": 1432735824653, "content": content,
            }
        ).encode()
    )  # fmt: skip
    assert event is not None
    members = {sender: situation.called or "Mallory", ME: "Shoal"}
    if situation.group:
        members |= {"@anna:p": "Anna", "@b:p": "B"}
    return parse_event(IDS.channel, room, event, members, ME, first=first)
