"""Workers without room for a subagent, in the store: what they leave, whom they wake."""

from __future__ import annotations

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import SubagentCaps
from tests.helpers.children import SESSION, Parent, jobs, take

WAKES = (keys.wake("jobs"), keys.wake(keys.SUBAGENT_WAKE))


async def spawned(client: RedisClient, many: int, chat: str = "owner/a") -> None:
    parent = await Parent.begin(client, chat=chat)
    await parent.spawn(*(f"{chat[-1]}{i:07}" for i in range(many)))
    await parent.commit()


async def queue_job(client: RedisClient, id: str) -> None:
    assert await Jobs(client).enqueue("job", id=id)


async def test_who_has_no_room_leaves_subagents_due_for_others(client: RedisClient) -> None:
    """They keep their place in the queue; whoever stands behind more of them than one look shows is found."""
    for chat in "abcd":
        await spawned(client, 20, f"owner/{chat}")
    before = await client.command("ZRANGE", keys.queue("jobs"), 0, -1, "WITHSCORES")
    await queue_job(client, "memory")
    full = jobs(client)
    claims = await full.acquire(8, subagents=0)
    assert [claim.member for claim in claims] == ["memory"]
    assert await full.acquire(8, subagents=0) == []
    left = await client.command("ZRANGE", keys.queue("jobs"), 0, -1, "WITHSCORES")
    at = left.index(b"memory")
    assert left[:at] + left[at + 2 :] == before
    await queue_job(client, "later")
    assert [claim.member for claim in await jobs(client).acquire(2, subagents=1)] == ["sub:a0000000", "later"]
    assert len(await jobs(client).acquire(100, subagents=3)) == 3


async def test_what_is_left_wakes_those_whom_it_concerns(client: RedisClient) -> None:
    """A worker that took something passes on a token for each kind that is still due, and none for what is not."""
    await spawned(client, 3)
    await queue_job(client, "upkeep")  # behind "sub:…" also where both are due in the same millisecond

    async def woken(count: int) -> list[bool]:
        await client.command("DEL", *WAKES)
        await jobs(client).acquire(count)
        return [bool(await client.command("EXISTS", wake)) for wake in WAKES]

    assert await woken(1) == [True, True]
    assert await woken(1) == [True, True]
    assert await woken(1) == [True, False]
    assert await woken(1) == [False, False]


async def test_a_subagent_wakes_those_who_have_room_for_one(client: RedisClient) -> None:
    """Spawned, given back, and put back by the sweep: nobody else hears of it."""

    async def woken() -> list[bool]:
        found = [bool(await client.command("EXISTS", wake)) for wake in WAKES]
        await client.command("DEL", *WAKES)
        return found

    await spawned(client, 1)
    assert await woken() == [False, True]
    queue = jobs(client)
    [claim] = await queue.acquire(1)
    assert await woken() == [False, False]
    await queue.release(claim)
    assert await woken() == [False, True]
    await client.command("DEL", keys.queue("jobs"))
    assert await Subagents(client).requeue_lost() == 1
    assert await woken() == [False, True]


async def test_as_many_places_as_a_cancel_frees_are_offered_at_once(client: RedisClient) -> None:
    """Those who wait are nudged once for all, and not in vain."""
    caps = SubagentCaps(0, 6)
    await spawned(client, 6, "owner/a")
    await spawned(client, 9, "owner/b")
    assert len(await take(client, 20, caps=caps)) == 6
    assert await take(client, 20, caps=caps) == []
    await client.command("DEL", *WAKES)
    assert await Subagents(client).cancel(SESSION) == 6
    assert await client.command("EXISTS", *WAKES) == 1
    assert len(await take(client, 20, caps=caps)) == 6
