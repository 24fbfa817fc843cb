"""The instruments of the chaos programs: they must see what they are there to see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from proof.chaos.recovery import Blow, recoveries, times_of
from proof.chaos.witness import Event, Witness
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import load
from shared.store.turns.inbox import TURNS, Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from shared.tasks import cancel_all
from tests.helpers.build import reply, say
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


@pytest.fixture
async def witness(client: RedisClient, redis_url: str) -> AsyncIterator[Witness]:
    made = Witness(redis_url)
    task = asyncio.create_task(made.run())
    await eventually(made.listening.is_set)
    yield made
    await cancel_all([task])


async def claim(client: RedisClient, owner: str) -> Claim:
    """The turn of the session in the hands of `owner`."""
    queue = LeaseQueue(client, TURNS, owner=owner, lease_s=30)
    [accepted] = await queue.acquire(1)
    await queue.close()
    return accepted


async def accepted_over(client: RedisClient) -> tuple[Claim, Claim]:
    """A turn whose first owner wrote a step and then lost its lease to a second one, which wrote one, too."""
    await say(Inbox(client))
    first = await claim(client, "a" * 32)
    await Turns(client).append_step(first, 1, step(1))
    await client.command("ZADD", keys.queue(TURNS), 0, first.member)
    second = await claim(client, "b" * 32)
    await Turns(client).append_step(second, 2, step(2))
    return first, second


def step(number: int) -> AssistantEntry:
    return AssistantEntry(content=f"step {number}", turn=1)


async def kinds(witness: Witness, last: str) -> list[str]:
    await eventually(lambda: last in [event.kind for event in witness.events[SESSION]], what=f"a {last!r}")
    return [event.kind for event in witness.events[SESSION]]


async def test_a_turn_that_is_recovered_properly_is_no_wrong(client: RedisClient, witness: Witness) -> None:
    """Two leases one behind the other, each write from the one that holds it: three zeros, and the events in order."""
    _, second = await accepted_over(client)
    await Turns(client).commit(second, history=[step(2)], lines=[reply("done", 1)], event=TurnEvent(1, "done"))
    expected = ["acquired", "ledger", "acquired", "ledger", "commit", "given back"]
    assert await kinds(witness, "given back") == expected
    assert (witness.stale_accepted, witness.stale_refused, witness.overlaps) == (0, 0, 0)


async def test_a_late_write_that_is_turned_away_is_counted_as_refused(client: RedisClient, witness: Witness) -> None:
    """The fence holds: the older lease wrote nothing."""
    first, _ = await accepted_over(client)
    with pytest.raises(Exception, match="lost"):
        await Turns(client).append_step(first, 3, step(3))
    await client.run("jobs/wake", queue=TURNS)  # whatever comes next ends the script before
    await eventually(lambda: witness.stale_refused == 1)
    assert (witness.stale_accepted, witness.overlaps) == (0, 0)


async def test_a_late_write_that_is_accepted_is_counted_as_stale_and_as_an_overlap(
    client: RedisClient, witness: Witness
) -> None:
    """With a ledger script that does not ask for the lease both counts of wrongs show it."""
    first, _ = await accepted_over(client)
    true = load("turns/step")
    fence = "if not holds_lease(leases, member, lease) then return 'lost' end"
    assert fence in true.source
    broken = true._replace(source=true.source.replace(fence, ""))
    step: dict[str, Value] = {
        "member": first.member,
        "lease": first.lease_id,
        "step": 3,
        "record": b"late",
        "cap_bytes": 1000,
    }
    await client.evaluate(broken, broken.words(step, keys.Whose(session=SESSION, queue=TURNS)))
    await eventually(lambda: witness.stale_accepted == 1)
    assert witness.overlaps == 1


def test_the_time_that_a_turn_stood_still_is_read_from_the_events() -> None:
    """Until another lease, from the moment of giving back, or until the next write: as the fault wants it."""
    events = {
        "s": [
            Event(10.0, "acquired", "a:1"),
            Event(12.5, "given back", "a:1"),
            Event(13.0, "acquired", "b:2"),
            Event(14.0, "commit", "b:2"),
        ],
        "t": [Event(10.0, "acquired", "c:1"), Event(11.5, "ledger", "c:1"), Event(12.0, "commit", "c:1")],
    }
    blows = [
        Blow("killed", 11.0, "a", "taken"),
        Blow("drained", 11.0, "a", "handed over"),
        Blow("away", 11.0, "", "progress"),
        Blow("nobody", 11.0, "x", "taken"),
        Blow("too late", 15.0, "", "progress"),
    ]
    assert recoveries(blows, events) == {"killed": [2.0], "drained": [0.5], "away": [2.0, 0.5]}


def test_a_p99_of_few_is_the_worst_of_them() -> None:
    """By nearest rank: a percentile is a time that was measured, and never below the one that it should be."""
    assert times_of([3.0, 1.0, 2.0]) == (3, 2.0, 3.0, 3.0)
    assert times_of([]) == (0, 0.0, 0.0, 0.0)
