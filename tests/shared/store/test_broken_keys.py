"""Every kind of key, broken in every way: one chat's harms that chat alone, one of the fleet what cannot do without it.

The kinds come from `shared.store.keys`, so that a new one is tested from its first day.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import pytest

from shared.errors import LeaseLost, RedisAway, Refused, ShoalError
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry
from shared.process.fleet_gauges import FleetGauges
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.outbox import Outbox, read_outboxes
from shared.store.fleet.presence import Presence, announce, list_processes, read_queue
from shared.store.fleet.redis_server import read_broken_keys
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.chats import Chats
from shared.store.sessions.erase import erase
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.break_keys import BREAKAGES, KINDS, Breakage, break_key, names_of
from tests.helpers.build import message
from tests.helpers.children import Parent
from tests.helpers.platform_chat import CHANNEL, PlatformChat
from tests.helpers.schedules import schedule

BROKEN: Final = "web:owner/a"
OTHER: Final = "web:owner/b"
ELSEWHERE: Final = "42"
"""A chat of a platform."""

NEEDED: Final = {"shoal:{0ax}:queue:turns", "shoal:{0ax}:leases:turns"}
"""Keys of the fleet without which no turn can begin or end. So are the ids of today's messages of a channel."""


class Fleet:
    """What a gateway and a worker do."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.inbox, self.turns, self.outbox = Inbox(client), Turns(client), Outbox(client)
        self.queue = LeaseQueue(client, "turns", owner="a" * 32, lease_s=30)
        self.jobs = LeaseQueue(client, "jobs", owner="a" * 32, lease_s=30)
        self.deliveries = DeliveryQueue(client, CHANNEL, lease_s=30)
        self.messages = 0

    async def say(self, session: str) -> str:
        self.messages += 1
        sent = message(f"message {self.messages}", chat=session.partition(":")[2], id=f"id{self.messages}")
        await self.inbox.ingest(sent, log_line=UserLine(id=sent.id, text=sent.content), principal="owner")
        return sent.id

    async def commit(self, claim: Claim) -> bool:
        assert claim.turn is not None
        n = claim.turn.n
        line = OutboundMessage(content="ok", turn=n, in_reply_to=(f"turn {n} of {claim.session}",))
        entry = AssistantEntry(content="ok", turn=n)
        done = await self.turns.commit(claim, history=[entry], lines=[line], event=TurnEvent(n, "done"))
        return done.first

    async def talk(self, session: str) -> None:
        """A message, and its answer in the log; what waits before it is answered, too."""
        await self.say(session)
        newest = int(await self.client.command("HGET", keys.session(session), "n"))
        for _ in range(10):
            for claim in await self.queue.acquire(10):
                assert claim.turn is not None
                assert await self.commit(claim)
                if (claim.session, claim.turn.n) == (session, newest):
                    lines = await self.outbox.read_before(session, seq=None, limit=3)
                    answers = [line.line for line in lines if isinstance(line.line, OutboundMessage)]
                    assert f"turn {newest} of {session}" in answers[-1].in_reply_to
                    return
        raise AssertionError(f"nobody answers {session}")

    def chores(self) -> list[Callable[[], Awaitable[object]]]:
        """What loops of processes do all the time."""
        record = Presence(kind="worker", name="w", host="h", pid=1, started_at=1, version="1")
        return [
            lambda: announce(self.client, record),
            lambda: list_processes(self.client),
            lambda: read_queue(self.client, "turns"),
            lambda: read_outboxes(self.client),
            lambda: self.jobs.acquire(10),
            lambda: self.queue.acquire_next(1),
            lambda: self.deliveries.acquire(10),
            lambda: Schedules(self.client).due(),
            lambda: Subagents(self.client).requeue_lost(),
            lambda: MemoryStore(self.client).idle.due(10),
            lambda: MemoryStore(self.client).rework.due(10),
            lambda: Sessions(self.client).state(BROKEN),
            lambda: self.outbox.position(BROKEN),
            lambda: self.outbox.read_after(BROKEN, after=0),
            lambda: Chats(self.client).latest("web", "owner"),
            lambda: self.inbox.stop(BROKEN),
            lambda: FleetGauges(self.client).refresh(),
        ]

    async def time_passes(self) -> None:
        """Whatever waits for a minute, or for a lease to lapse, is due."""
        for member in (keys.turn(BROKEN), keys.turn(OTHER)):
            await self.client.command("ZADD", keys.queue("turns"), "XX", 1, member)


@pytest.fixture
async def fleet(client: RedisClient) -> AsyncIterator[Fleet]:
    """Two chats with a past, each with a turn under way and one that waits; a chat of a platform with a line to
    deliver; a subagent, a schedule, a memory."""
    fleet = Fleet(client)
    for session in (BROKEN, OTHER):
        await fleet.talk(session)
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    await parent.commit()
    await Schedules(client).add(schedule(), 1)
    platform = PlatformChat(client, ELSEWHERE)
    await platform.ask_and_answer("a line to deliver")
    await fleet.deliveries.acquire(1)
    await client.command("RPUSH", keys.archive(BROKEN), "archived")
    await client.command("HSET", keys.memory(f"chat:{BROKEN}"), "text", "what is known", "v", "1")
    await announce(client, Presence(kind="worker", name="v", host="h", pid=1, started_at=1, version="1"))
    for session in (BROKEN, BROKEN, OTHER, OTHER):
        await fleet.say(session)
    yield fleet
    await fleet.queue.close()


def needed(names: Sequence[str], how: Breakage) -> bool:
    """Whether no chat of the web can go on."""
    return how == "wrong type" and any(name in NEEDED or name.startswith("shoal:{0ax}:seen:web:") for name in names)


@pytest.mark.parametrize("how", BREAKAGES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_broken_key_harms_what_it_belongs_to_alone(
    fleet: Fleet, client: RedisClient, kind: keys.FleetKey | keys.Keys, how: Breakage
) -> None:
    """Leases of the others are renewed and their turns end; loops get errors for which they wait; once it is mended
    all goes on. A chat that lost one of its keys is never mute."""
    claims = {claim.session: claim for claim in await fleet.queue.acquire(10)}
    names = await names_of(client, kind, BROKEN)
    for name in names:
        await break_key(client, name, how, random.Random(5))
    own = isinstance(kind, keys.OwnKeys)
    lost = how != "future version" and "shoal:{0ax}:leases:turns" in names
    if not needed(names, how):
        renewed = await fleet.queue.renew([claims[OTHER], claims[BROKEN]])
        assert renewed[0] == (None if lost else 0)
        assert own or lost or renewed[1] == 0
        both = map(fleet.commit, (claims[OTHER], claims[BROKEN]))
        other, broken = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(other, LeaseLost) if lost else other is True, other
        assert isinstance(broken, bool | ShoalError), broken
        if lost:
            await fleet.time_passes()
        await fleet.talk(OTHER)
    # Bytes that are no record of ours may be any error where only the broken chat is read.
    read = (ValueError, IndexError, TypeError) if own and how in ("random bytes", "future version") else ()
    for chore in fleet.chores():
        with contextlib.suppress(*(() if how == "deleted" else (RedisAway, Refused, LeaseLost)), *read):
            await chore()
    if how == "deleted":
        await fleet.talk(BROKEN)
        return
    # A person is told of their own chat; where a key of the fleet is broken, the message is sent again.
    with contextlib.suppress(Refused, *(() if own else (RedisAway,))):
        await fleet.say(BROKEN)
    if how == "wrong type" and isinstance(kind, keys.FleetKey):
        assert kind in await read_broken_keys(client)
    for name in names:
        await client.command("DEL", name)
    await fleet.time_passes()
    await fleet.talk(BROKEN)
    await fleet.talk(OTHER)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if isinstance(kind, keys.OwnKeys)], ids=str)
async def test_a_broken_chat_can_be_erased(fleet: Fleet, client: RedisClient, kind: keys.OwnKeys) -> None:
    """So an operator mends it."""
    for name in (*await names_of(client, kind, BROKEN), kind(BROKEN)):
        await break_key(client, name, "wrong type", random.Random(5))
    await erase(client, BROKEN)
    await fleet.talk(BROKEN)
