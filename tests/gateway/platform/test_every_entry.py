"""Who may speak on every platform, each through its own wire format: parsed, judged, and let in by codes.

A channel of PLATFORMS has its rows in `tests/gateway/channels/<name>/situations.py`: `IDS`, `can_be` and `hear`. One
without them fails here.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec
import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.platform.access import judge
from gateway.platform.inlet import PlatformInlet
from gateway.platform.protocol import Platform, PlatformMessage
from gateway.platform.registry import PLATFORMS
from shared.messages.outbound import OutboundMessage
from shared.settings import MediaSettings, Settings
from shared.store.access.pairing import PairingFailed, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from tests.contracts.channels.bench import all_benches
from tests.helpers.access_table import ENTRIES, SITUATIONS, Entry, Ids, Person, Situation, rules
from tests.helpers.parked import QUESTION, decisions, park

PEOPLE: Final[tuple[Person, ...]] = ("listed", "admin", "paired", "stranger", "member")
"""Every platform has these."""

FORMS: Final[Mapping[str, Entry]] = {"edit": "edited", "press": "pressed", "files": "file"}
"""What a bench may say that its platform cannot, and the way in that it is."""

LISTED = Situation(person="listed", expected="allowed")
ADMIN = Situation(person="admin", entry="command", expected="allowed")
STRANGER = Situation(person="stranger", expected="unknown")


class Rows(Protocol):
    """The rows of one channel."""

    IDS: Ids

    def can_be(self, situation: Situation) -> bool:
        """Whether the platform has a form of it."""
        ...

    def hear(self, situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
        """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
        ...


@pytest.fixture(params=sorted(PLATFORMS))
def rows(request: pytest.FixtureRequest) -> Rows:
    """Those of each channel, one after the other."""
    found = cast(Rows, importlib.import_module(f"tests.gateway.channels.{request.param}.situations"))
    assert found.IDS.channel == request.param
    return found


def platform_message(rows: Rows, situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage:
    """What must be heard of it."""
    found = rows.hear(situation, words, nth)
    assert found is not None, situation.id
    return found


@pytest.mark.parametrize("entry", ENTRIES)
def test_who_may_speak_is_decided_by_ids_and_place(rows: Rows, entry: Entry) -> None:
    """Whatever people call themselves (also with the id of somebody who may), pass on, edit, press or attach; alone is
    not in a group, and the sender is who sent it."""
    for one in (one for one in SITUATIONS if one.entry == entry and rows.can_be(one)):
        situation = msgspec.structs.replace(one, called=rows.IDS.people["listed"]) if one.called == "1" else one
        found = platform_message(rows, situation)
        verdict = judge(rules(rows.IDS), found, paired=situation.paired)
        assert verdict.kind == situation.expected, (situation.id, verdict)
        assert found.message.channel == rows.IDS.channel
        assert found.group is (situation.group is not None), situation.id
        if rows.IDS.channel == "email":
            assert found.message.sources == (f"mail of {found.message.chat_id}",), situation.id
        elif rows.IDS.channel != "matrix":  # which does not say so
            assert found.forwarded is (entry == "forwarded"), situation.id
        if situation.group:
            assert found.message.chat_id == rows.IDS.groups[situation.group], situation.id
        if situation.person in PEOPLE:
            assert found.message.sender_id == rows.IDS.people[situation.person], situation.id
            assert (found.replaces is not None) is (entry == "edited"), situation.id
            assert bool(found.files) is (entry == "file"), situation.id


async def test_what_a_platform_has_is_in_its_rows(rows: Rows) -> None:
    """Its bench says what it cannot; all else must be tried: everybody alone and in every group, and every way in."""
    name = next(one for one in all_benches() if one.split(", ")[0] == rows.IDS.channel)
    async with all_benches()[name]() as bench:
        cannot = bench.cannot
    there = {(one.person, one.group, one.addressed, one.entry) for one in SITUATIONS if rows.can_be(one)}
    people = [*PEOPLE, *(one for one in ("bot", "self") if one not in cannot)]
    places = [None, *(rows.IDS.groups if "group" not in cannot else ())]
    for person in people:
        for group in places:
            for addressed in (True, False) if group else (True,):
                assert (person, group, addressed, "message") in there, (person, group, addressed)
    ways = {"message", "command", "forwarded"} | {way for what, way in FORMS.items() if what not in cannot}
    for person in PEOPLE:
        assert {entry for one, group, _, entry in there if one == person and group is None} >= ways, person


def test_names_are_no_ids(rows: Rows) -> None:
    """Nobody in the table is known by a name: the ids of each are its own."""
    people = [id for id in rows.IDS.people.values() if id]
    assert len({*people, *rows.IDS.groups.values()}) == len(people) + len(rows.IDS.groups)


# Letting people in, from the chats of each platform


class Notebook:
    """Keeps nothing."""

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        pass


class Named:
    """As much of a platform as letting in asks for."""

    def __init__(self, name: str) -> None:
        self.name = name


class Replica:
    """One gateway of a channel, as far as its way in."""

    def __init__(self, rows: Rows, client: RedisClient, folder: Path) -> None:
        access = rules(rows.IDS)
        settings = Settings(
            media=MediaSettings(dir=folder), channels={rows.IDS.channel: {"admins": list(access.admins)}}
        )
        ingress = Ingress(client, build_commands(settings, client))
        platform = cast(Platform, Named(rows.IDS.channel))
        self.inlet = PlatformInlet(platform, access, ingress, Notebook(), client, settings)
        self._rows, self._client = rows, client

    async def code(self, nth: int = 1) -> str:
        """What a stranger is told who writes."""
        found = platform_message(self._rows, STRANGER, "let me in", nth)
        assert await self.inlet.take(found) == "not allowed"
        replies = re.search(r"\*\*(\S{4}-\S{4})\*\*", (await self.replies(found))[-1])
        assert replies is not None
        return replies[1]

    async def pair(self, code: str, nth: int) -> str:
        """What an admin is answered."""
        found = platform_message(self._rows, ADMIN, f"/pair {code}", nth)
        assert await self.inlet.take(found) == "command"
        lines = [one.line for one in await Outbox(self._client).read_after(found.message.session, after=0)]
        mine = [one for one in lines if isinstance(one, OutboundMessage) and found.message.id in one.in_reply_to]
        return mine[-1].content

    async def replies(self, found: PlatformMessage) -> list[str]:
        lines = [one.line for one in await Outbox(self._client).read_after(found.message.session, after=0)]
        return [one.content for one in lines if isinstance(one, OutboundMessage)]


async def test_the_sixth_guess_is_refused(rows: Rows, client: RedisClient, tmp_path: Path) -> None:
    """Though it is right, on whichever replica; who guessed on one platform has guessed on no other."""
    replicas = [Replica(rows, client, tmp_path), Replica(rows, client, tmp_path)]
    code = await replicas[0].code()
    for nth in range(5):
        assert "there is no such code" in await replicas[nth % 2].pair(f"WR0NG-{nth}", nth)
    assert "too many wrong codes" in await replicas[1].pair(code, 5)
    assert not await Pairings(client).is_let_in(rows.IDS.channel, rows.IDS.people["stranger"])


async def test_of_two_approvals_at_once_one_counts(rows: Rows, client: RedisClient, tmp_path: Path) -> None:
    """Said twice, on two replicas at the same moment; the other one is told that the code was used."""
    first, second = Replica(rows, client, tmp_path), Replica(rows, client, tmp_path)
    code = await first.code()
    replies = await asyncio.gather(first.pair(code, 1), second.pair(code, 2))
    assert sum("used already" in one for one in replies) == 1
    assert sum(one.startswith("Let in: ") for one in replies) == 1
    assert await second.inlet.take(platform_message(rows, STRANGER, "now?", 3)) == "taken"


async def test_of_an_approval_here_and_one_at_the_console_one_counts(
    rows: Rows, client: RedisClient, tmp_path: Path
) -> None:
    """`shoal pair approve` asks the same."""
    replica, pairings = Replica(rows, client, tmp_path), Pairings(client)
    code = await replica.code()

    async def console() -> str:
        try:
            return f"Let in: {(await pairings.approve(code, let_in_line(0), by='console', request='r')).sender}"
        except PairingFailed as exc:
            return exc.message

    replies = await asyncio.gather(replica.pair(code, 1), console())
    assert sum(one.startswith("Let in: ") for one in replies) == 1
    assert sum("used already" in one for one in replies) == 1


async def test_of_a_yes_and_a_no_to_a_tool_at_once_one_counts(rows: Rows, client: RedisClient, tmp_path: Path) -> None:
    """On two replicas, by who asked; whoever merely calls themselves so has no say."""
    first, second = Replica(rows, client, tmp_path), Replica(rows, client, tmp_path)
    asked = platform_message(rows, LISTED, "go")
    assert await first.inlet.take(asked) == "taken"
    await park(client, msgspec.structs.replace(QUESTION, people=(asked.message.sender_id,)))
    named = Situation(person="stranger", entry="command", called=asked.message.sender_id, expected="unknown")
    assert await second.inlet.take(platform_message(rows, named, f"/yes {QUESTION.id}", 2)) == "not allowed"
    say = msgspec.structs.replace(LISTED, entry="command")
    answers = (platform_message(rows, say, f"/{word} {QUESTION.id}", nth) for nth, word in enumerate(("yes", "no"), 3))
    verdicts = await asyncio.gather(
        *(one.inlet.take(answer) for one, answer in zip((first, second), answers, strict=True))
    )
    assert verdicts == ["command", "command"]
    [counted] = await decisions(client, asked.message.session)
    assert counted.by == asked.message.sender_id
    replies = (await first.replies(asked))[-2:]
    assert sum("`exec` now" in one or "do not run `exec`" in one for one in replies) == 1, replies


async def test_nobody_else_lets_anybody_in(rows: Rows, client: RedisClient, tmp_path: Path) -> None:
    """Not who is merely allowed, whatever they call themselves; a stranger is not even answered. It is no guess."""
    replica = Replica(rows, client, tmp_path)
    code = await replica.code()
    listed = Situation(person="listed", entry="command", called=rows.IDS.people["admin"], expected="allowed")
    found = platform_message(rows, listed, f"/pair {code}", 2)
    assert await replica.inlet.take(found) == "command"
    assert "Only who is named in `admins`" in (await replica.replies(found))[-1]
    stranger = Situation(person="stranger", entry="command", called=rows.IDS.people["admin"], expected="unknown")
    assert await replica.inlet.take(platform_message(rows, stranger, f"/pair {code}", 3)) == "not allowed"
    assert (await replica.pair(code, 4)).startswith("Let in: ")
