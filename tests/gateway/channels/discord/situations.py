"""Who may speak where, as Discord's gateway tells it."""

from __future__ import annotations

from typing import Any, Final

from gateway.platform.protocol import PlatformMessage
from tests.fakes.discord import BOT
from tests.gateway.channels.discord.events import ALONE, ME, SERVER, gateway_event, pressed
from tests.helpers.access_table import Ids, Situation

IDS: Final = Ids(
    "discord",
    {
        "listed": "100000000000000011", "admin": "100000000000000012", "paired": "100000000000000013",
        "stranger": "100000000000000014", "member": "100000000000000015", "bot": "100000000000000016",
        "self": ME.id, "nobody": "",
    },
    {
        "listed": "200000000000000011", "narrow": "200000000000000012", "open": "200000000000000013",
        "off": "200000000000000014", "other": "200000000000000015",
    },
)  # fmt: skip

FIRST: Final = 175928847299117063


def can_be(situation: Situation) -> bool:
    """A press of our button, or a command with our name, is for us; and every message has somebody who wrote it."""
    if situation.person == "nobody" or (situation.entry == "pressed" and situation.person == "self"):
        return False
    return not situation.group or situation.addressed or situation.entry not in ("command", "pressed")


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender = {
        "id": IDS.people[situation.person],
        "username": situation.called or "mallory",
        "global_name": situation.called or "Mallory",
        "bot": situation.person == "bot",
    }
    words = words or {"command": "/help@shoal", "file": ""}.get(situation.entry, "hello")
    where: dict[str, Any] = {"channel_id": f"{ALONE[:-2]}{IDS.people[situation.person][-2:]}"}
    if situation.group:
        where = {"channel_id": IDS.groups[situation.group], "guild_id": SERVER}
    if situation.entry == "pressed":
        who = {"member": {"user": sender}, "user": None} if situation.group else {"user": sender}
        return pressed("0:/yes", **where, **who)
    sent: dict[str, Any] = {"id": str(FIRST + nth), "author": sender, "content": words, **where}
    if situation.group and situation.addressed and situation.entry != "command":
        sent |= {"content": f"<@{ME.id}> {words}", "mentions": [BOT]}
    if situation.entry == "forwarded":
        sent["message_snapshots"] = [{"message": {"content": f"by {IDS.people['listed']}", "type": 0}}]
    if situation.entry == "file":
        sent["attachments"] = [{"id": "1", "filename": "note.txt", "url": "https://cdn.discordapp.com/n"}]
    if situation.entry == "edited":
        return gateway_event("MESSAGE_UPDATE", **sent, edited_timestamp="2017-07-11T20:20:00+00:00")
    return gateway_event(**sent)
