"""`/retry` and the deaths of workers: the turn in the place of another is answered once."""

from __future__ import annotations

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.messages.outbound import UserLine
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from tests.crash.test_worker_death import HELD, WORDS, stands
from tests.helpers.build import message
from tests.helpers.fleet import history, holder, replies, warm, watching
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


async def test_a_worker_that_dies_after_the_rewrite_costs_no_message_and_no_second_answer(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Killed in the middle of the new answer, with the command delivered again meanwhile."""
    model.script(Answer(text="short"), HELD)
    ingress = Ingress(client, build_commands(Settings(), client))

    async def tell(text: str, id: str) -> None:
        await ingress.ingest(message(text, id=id), show=UserLine(id=id, text=text), principal="owner")

    await warm(*[spawn("worker", MODEL__CLIENT="direct") for _ in range(2)])
    await tell("tell me", "m1")
    await eventually(lambda: replies(client, SESSION), within_s=60)
    async with watching(client, SESSION) as seen:
        await tell("/retry", "r1")
        await stands(seen)
        (await holder(client, SESSION)).kill()
        await tell("/retry", "r1")
        model.release()

        async def both() -> bool:
            return len(await replies(client, SESSION)) == 2

        await eventually(both, within_s=60)
    assert await replies(client, SESSION) == ["short", WORDS]
    asked, answered = await history(client, SESSION)
    assert isinstance(asked, UserEntry)
    assert isinstance(answered, AssistantEntry)
    assert (asked.turn, asked.content, answered.content) == (2, "tell me", WORDS)
