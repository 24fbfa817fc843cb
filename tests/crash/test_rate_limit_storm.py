"""A busy provider and a crowd of turns: real workers, one key."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Request, ScriptedOpenAI
from tests.helpers.wait import eventually

CROWD: Final = 60
BUSY_S: Final = 3.0
PAUSE_S: Final = 0.5


async def test_a_crowd_on_two_workers_does_not_storm_a_busy_provider(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The provider answers 429 for 3 s and asks for 0.5 s each time; 61 turns on two workers want it.

    The first call closes the way for both workers, and from then on at most one call tries every 0.5 s. So the provider
    sees at most 1 + 3 / 0.5 + 1 = 8 requests, where turns on their own would make four each. Then every turn is
    answered by one request, and none of them twice.
    """
    model.script(Answer(status=429, retry_after=str(PAUSE_S), times=0))
    fleet = [spawn("worker", MODEL__CLIENT="direct", WORKER__TURNS="100") for _ in range(2)]
    await warm(*fleet)
    inbox = Inbox(client)
    await say(inbox, "hi", chat="owner/0")
    await eventually(lambda: client.command("KEYS", keys.limit("*")), within_s=60, what="a closed way")
    await asyncio.gather(*(say(inbox, "hi", chat=f"owner/{n}") for n in range(1, CROWD + 1)))
    refused = await eventually(lambda: _for_so_long(model), within_s=60, every_s=0.05, what="tries for 3 s")
    model.reset()
    assert len(refused) <= 1 + (refused[-1].at - refused[0].at) / PAUSE_S + 1
    await eventually(lambda: _all_answered(client), within_s=90, every_s=0.2, what="61 answers")
    assert model.stats()["requests"] == CROWD + 1
    assert all(worker.alive for worker in fleet)
    assert any("provider opened" in worker.log for worker in fleet)


def _for_so_long(model: ScriptedOpenAI) -> list[Request]:
    """What was asked, once the first and the last request are so far apart."""
    asked = model.requests()
    return asked if asked and asked[-1].at - asked[0].at >= BUSY_S else []


async def _all_answered(client: RedisClient) -> bool:
    for n in range(CROWD + 1):
        assert await replies(client, f"web:owner/{n}") == ["echo: hi"]
    return True
