"""Who may speak where, as a table of situations that every way in must agree with.

Roles stand for ids: a channel's test maps them to ids as its platform has them (`Ids`), builds what the platform would
send for each of SITUATIONS, puts it through its `parse.py`, and compares:

    heard = parse(update_for(situation, IDS))
    assert judge(rules(IDS), heard, paired=situation.paired).kind == situation.expected

A platform without groups, edits or forwarded messages leaves those out (`situation.group`, `situation.entry`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from gateway.platform.access import AccessSettings, GroupRule
from gateway.platform.protocol import PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage

Person = Literal["listed", "admin", "paired", "stranger", "member", "bot", "self", "nobody"]
"""`nobody`: a message without a sender, as of a channel that posts in its own name; `member`: named in the rule of the
narrow group alone."""

Group = Literal["listed", "narrow", "open", "off", "other"]
Entry = Literal["message", "edited", "forwarded", "pressed", "command", "file"]
"""How the message comes in. `forwarded` is somebody else's text, `pressed` a button."""

ENTRIES: Final[tuple[Entry, ...]] = ("message", "edited", "forwarded", "pressed", "command", "file")

Expected = Literal["allowed", "ignored", "unknown", "not allowed"]


class Ids(msgspec.Struct, frozen=True):
    """How a platform calls them. `channel` is the channel's name."""

    channel: str
    people: Mapping[Person, str]
    groups: Mapping[Group, str]


PLAIN: Final = Ids(
    "pond",
    {"listed": "1", "admin": "2", "paired": "3", "stranger": "4", "member": "5", "bot": "6", "self": "7", "nobody": ""},
    {"listed": "-1", "narrow": "-2", "open": "-3", "off": "-4", "other": "-5"},
)


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody says something, alone with us (`group` None) or in a group, called whatever they like to be called."""

    person: Person
    group: Group | None = None
    addressed: bool = True
    entry: Entry = "message"
    called: str = ""
    expected: Expected

    @property
    def paired(self) -> bool:
        return self.person == "paired"

    @property
    def id(self) -> str:
        """For a test's name."""
        where = "alone" if self.group is None else f"{self.group} group{'' if self.addressed else ', not addressed'}"
        return f"{self.person}, {where}, {self.entry}{', called as another' if self.called else ''}"


def rules(ids: Ids = PLAIN) -> AccessSettings:
    """The settings that the table is about."""
    groups, people = ids.groups, ids.people
    return AccessSettings(
        allow_from=(people["listed"],),
        admins=(people["admin"],),
        allow_groups=tuple(groups[one] for one in ("listed", "narrow", "open", "off")),
        group_rules={
            groups["narrow"]: GroupRule(allow_from=(people["member"],)),
            groups["open"]: GroupRule(groups="open"),
            groups["off"]: GroupRule(groups="off"),
        },
    )


_ALONE: Final[dict[Person, Expected]] = {
    "listed": "allowed", "admin": "allowed", "paired": "allowed", "stranger": "unknown", "member": "unknown",
    "bot": "ignored", "self": "ignored", "nobody": "ignored",
}  # fmt: skip
_RECEIVED_NOWHERE: Final = ("bot", "self", "nobody")


def _in_group(person: Person, group: Group, *, addressed: bool) -> Expected:
    if person in _RECEIVED_NOWHERE or group == "off":
        return "ignored"
    if not addressed:
        return "allowed" if group == "open" else "ignored"
    if group == "other" or (group == "narrow" and person != "member"):
        return "not allowed"
    return "allowed"


def _situations() -> Iterator[Situation]:
    groups: tuple[Group, ...] = ("listed", "narrow", "open", "off", "other")
    for entry in ENTRIES:
        for person, expected in _ALONE.items():
            yield Situation(person=person, entry=entry, expected=expected)
            for group in groups:
                for addressed in (True, False):
                    yield Situation(
                        person=person,
                        group=group,
                        addressed=addressed,
                        entry=entry,
                        expected=_in_group(person, group, addressed=addressed),
                    )
    for called in ("listed", "admin", "1", "*"):
        yield Situation(person="stranger", called=called, expected="unknown")
        yield Situation(person="stranger", group="narrow", called=called, expected="not allowed")


SITUATIONS: Final = tuple(_situations())


def platform_message(situation: Situation, ids: Ids = PLAIN, *, id: str = "m1", **changes: object) -> PlatformMessage:
    """What a parser that makes no mistake has of it. The name, and who wrote a forwarded text, are there to mislead."""
    misleading = {"forwarded_from": ids.people["listed"], "sender_name": "listed", "admin": "1"}
    sender = ids.people[situation.person]
    message = InboundMessage(
        channel=ids.channel,
        chat_id=ids.groups[situation.group] if situation.group else f"c{sender}",
        sender_id=sender,
        id=id,
        content={"command": "/help", "pressed": "/yes", "file": ""}.get(situation.entry, "hello"),
        timestamp=1_700_000_000_000,
        metadata=misleading,
    )
    made = PlatformMessage(
        message=message,
        group=situation.group is not None,
        addressed=situation.addressed,
        own=situation.person == "self",
        from_bot=situation.person == "bot",
        name=situation.called or "Mallory",
        replaces="m0" if situation.entry == "edited" else None,
        files=(RemoteFile(handle="f1", name="note.txt"),) if situation.entry == "file" else (),
    )
    return msgspec.structs.replace(made, **changes)
