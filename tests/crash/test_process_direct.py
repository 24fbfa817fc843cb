"""Python callers and real workers."""

from __future__ import annotations

import asyncio

from shared.messages.live import DeltaEvent
from shared.store.client.redis_client import RedisClient
from shoal.direct import process_direct
from tests.helpers.fleet import holder, replies, warm, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

WORDS = " ".join(f"word{i}" for i in range(40))


async def test_callers_on_one_session_get_their_own_answers(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Two workers, five callers at once: one turn after the other, nothing mixed up."""
    for _ in range(2):
        spawn("worker", MODEL__CLIENT="direct")
    await workers(client, 2)
    async with asyncio.timeout(90):
        answers = await asyncio.gather(*(process_direct(f"question {i}", client=client) for i in range(5)))
    assert answers == [f"echo: question {i}" for i in range(5)]
    assert sorted(await replies(client, "cli:direct")) == sorted(answers)
    assert model.stats()["most_open"] == 1


async def test_a_worker_killed_in_the_middle_of_an_answer_goes_unnoticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The other worker answers; the text that the caller put together from the deltas is the answer, too."""
    model.script(Answer(text=WORDS, delta_s=0.05, held_after=20, times=0))
    await warm(*[spawn("worker", MODEL__CLIENT="direct") for _ in range(2)])
    events: list[DeltaEvent] = []
    asked = asyncio.create_task(process_direct("tell me", client=client, on_delta=events.append))
    await eventually(lambda: any("word9" in event.text for event in events), within_s=60)
    (await holder(client, "cli:direct")).kill()
    model.release()
    async with asyncio.timeout(90):
        assert await asked == WORDS
    shown = ""
    for delta in events:
        shown = delta.text if delta.full else shown + delta.text
    assert WORDS.startswith(shown)
    assert {delta.attempt for delta in events} == {1, 2}
