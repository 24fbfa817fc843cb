"""A claim hands over a bounded number of bytes: the server answers nothing else while it copies them."""

from __future__ import annotations

import msgspec
import pytest

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import TURNS, Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply, say
from tests.helpers.children import Parent
from tests.helpers.platform_chat import PlatformChat, gateway

BIG = "x" * 900_000
"""Two of these fit into a call, three do not."""


def make_queue(client: RedisClient, name: str = TURNS) -> LeaseQueue:
    return LeaseQueue(client, name, owner=nonce(), lease_s=60)


async def talk(client: RedisClient, chats: list[str], *, background: bool = False) -> None:
    """Chats with a long conversation, in which a message waits."""
    queue, turns, inbox = make_queue(client), Turns(client), Inbox(client)
    for chat in chats:
        await say(inbox, chat=f"owner/{chat}")
        [claim] = await queue.acquire(1)
        entry = UserEntry(content=BIG, turn=1)
        await turns.commit(claim, history=[entry], lines=[reply("yes", 1)], event=TurnEvent(1, "done"))
    for chat in chats:
        metadata = {BACKGROUND: "1"} if background else {}
        waits = msgspec.structs.replace(message(chat=f"owner/{chat}"), metadata=metadata)
        await inbox.ingest(waits, internal=background)
    await queue.close()
    await client.command("DEL", keys.wake(TURNS))


async def claim_all(client: RedisClient, queue: LeaseQueue, wanted: int, *, most: int | None = None) -> list[int]:
    """How many each call claims; a worker is woken as long as more is due."""
    counts = []
    while claims := await queue.acquire(wanted, most=most):
        counts.append(len(claims))
        assert sum(map(_bytes, claims)) < 2 * 2**20 + 10_000 or len(claims) == 1
        woken = await client.command("DEL", keys.wake(queue.name), keys.wake(keys.SUBAGENT_WAKE))
        due = await client.command("ZCOUNT", keys.queue(queue.name), "-inf", "(2000000000000")
        assert woken == (due > sum(counts)), "what is left is not forgotten"
    await queue.close()
    return counts


def _bytes(claim: Claim) -> int:
    work = claim.turn or claim.subagent
    assert work is not None
    return sum(map(len, work.ledger)) + sum(map(len, claim.turn.history if claim.turn else ()))


async def test_a_call_claims_as_many_long_conversations_as_fit(client: RedisClient) -> None:
    """Also when there are more due than it may claim, in fair order."""
    await talk(client, list("abcde"))
    assert await claim_all(client, make_queue(client), 8) == [2, 2, 1]


@pytest.mark.parametrize("wanted", [2, 4])
async def test_it_is_the_same_where_turns_wait_in_fair_order(client: RedisClient, wanted: int) -> None:
    """A queue longer than the call, which asks for more when much is due."""
    await talk(client, [f"chat{i}" for i in range(6)])
    assert await claim_all(client, make_queue(client), wanted, most=50) == [2, 2, 2]


async def test_background_work_is_bounded_too(client: RedisClient) -> None:
    """It waits in a queue of its own."""
    await talk(client, list("abc"), background=True)
    counts = [len(await make_queue(client).acquire(8)) for _ in range(3)]
    assert counts == [2, 1, 0]


async def test_small_chats_are_claimed_together_with_a_long_one(client: RedisClient) -> None:
    """The bound is one of bytes, not of members."""
    await talk(client, ["a", "b"])
    for chat in "cdefg":
        await say(Inbox(client), chat=f"owner/{chat}")
    await client.command("DEL", keys.wake(TURNS))
    assert await claim_all(client, make_queue(client), 8) == [7]


async def test_one_that_is_over_the_bound_is_claimed_alone(client: RedisClient) -> None:
    """A conversation and the steps of its turn may be larger than a call: it would never run otherwise."""
    await talk(client, ["a", "b"])
    queue = make_queue(client)
    [claim] = await queue.acquire(1)
    for step in (1, 2):
        await Turns(client).append_step(claim, step, AssistantEntry(content=BIG, turn=2))
    await queue.release(claim)
    await client.command("DEL", keys.wake(TURNS))
    assert await claim_all(client, queue, 8) == [1, 1]


async def test_subagents_are_bounded_by_their_steps(client: RedisClient) -> None:
    """A call that takes over several of a lost worker takes as many as fit."""
    parent = await Parent.begin(client)
    queue = make_queue(client, "jobs")
    await parent.spawn("s1", "s2", "s3")
    claims = await queue.acquire(3)
    for claim in claims:
        await Subagents(client).append_step(claim, 1, AssistantEntry(content=BIG, turn=1))
        await queue.release(claim)
    await client.command("DEL", keys.wake("jobs"), keys.wake(keys.SUBAGENT_WAKE))
    assert await claim_all(client, queue, 8) == [2, 1]


async def test_a_gateway_gets_chats_of_two_megabytes_at_once_and_the_others_next(client: RedisClient) -> None:
    """Each once, and nobody waits for the rest; one chat with more than that is handed over whole."""
    for chat in ("1", "2", "3", "4"):
        await PlatformChat(client, chat).ask_and_answer(BIG)
    await PlatformChat(client, "5").ask_and_answer(*[BIG[:600_000]] * 4)
    deliveries = gateway(client)
    chats, next_s = await deliveries.acquire(8)
    assert [held.session[-1] for held in chats] == ["1", "2", "3"]
    assert next_s == 0
    chats, _ = await deliveries.acquire(8)
    assert [held.session[-1] for held in chats] == ["4", "5"]
    assert (await deliveries.acquire(8))[0] == []
