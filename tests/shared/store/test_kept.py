"""How long a chat is kept: said anew when a fiftieth of the time is over, and for whatever begins anew."""

from __future__ import annotations

from typing import Final

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply, say

SESSION: Final = "web:owner/a"
LIMITS: Final = InboxLimits(session_days=50, log_days=5)
DAY_MS: Final = 86_400_000
OWN: Final = (keys.session(SESSION), keys.history(SESSION), keys.outbox(SESSION))


async def answer(client: RedisClient) -> None:
    """A message, and a turn that answers it."""
    await say(Inbox(client, LIMITS))
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(1)
    assert claim.turn is not None
    n = claim.turn.n
    line = [AssistantEntry(content="yes", turn=n)]
    await Turns(client, LIMITS).commit(claim, history=line, lines=[reply("yes", n)], event=TurnEvent(n, "done"))


async def left(client: RedisClient) -> list[int]:
    """Whole days until session, history and log end, rounded."""
    return [round(await client.command("PTTL", key) / DAY_MS) for key in OWN]


async def days_pass(client: RedisClient, days: float) -> None:
    for key in OWN:
        await client.command("PEXPIRE", key, int(await client.command("PTTL", key) - days * DAY_MS))
    await client.command("HINCRBY", keys.session(SESSION), "kept", -int(days * DAY_MS))


async def test_a_chat_that_goes_on_is_kept_for_its_whole_time_again(client: RedisClient) -> None:
    """However long it has been there."""
    await answer(client)
    assert await left(client) == [50, 50, 5]
    for _ in range(3):
        await days_pass(client, 4)
        await answer(client)
        assert await left(client) == [50, 50, 5]


async def test_a_turn_soon_after_another_does_not_say_it_again(client: RedisClient) -> None:
    """A fiftieth of the shortest time is no matter: three writes less."""
    await answer(client)
    await client.command("PEXPIRE", keys.history(SESSION), 2 * DAY_MS)
    await answer(client)
    assert await left(client) == [50, 2, 5]
    await days_pass(client, 0.11)
    await answer(client)
    assert await left(client) == [50, 50, 5]


async def test_a_history_that_begins_anew_is_kept_as_long(client: RedisClient) -> None:
    """After `/new`, or when it was consolidated."""
    await answer(client)
    await client.command("DEL", keys.history(SESSION))
    await answer(client)
    assert await left(client) == [50, 50, 5]
