"""A model that is away: its turns wait without a slot, their people are told, and at last there is an apology."""

from __future__ import annotations

from shared.messages.live import ProgressEvent
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import replies, warm, watching
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

AWAY = "web:owner/a"
FINE = "web:owner/b"


async def test_a_model_that_stays_away_wedges_no_chat_and_holds_no_slot(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """With one slot and a model that fails for one chat, the other chat is answered in between; the first is told, then
    gets an apology past the age limit, and its next message is answered. The age limit passes when the test says so.
    """
    model.script(
        Answer(match="hopeless", status=503, times=0),
        Answer(match="hello", text="fine", times=0),
    )
    worker = spawn(
        "worker",
        MODEL__CLIENT="direct",
        MODEL__RETRY_WAITS_S="0.05",
        MODEL__BREAKER_AFTER="1000",
        WORKER__TURNS="1",
        AGENT__GIVE_UP_S="600",
        AGENT__TELL_S="1",
    )
    await warm(worker)
    inbox = Inbox(client)
    async with watching(client, AWAY) as seen:
        await say(inbox, "hopeless", chat="owner/a", id="a1")
        await say(inbox, "hello", chat="owner/a", id="a2")
        await eventually(lambda: client.command("HEXISTS", keys.session(AWAY), "away"), within_s=30)
        for number in range(3):
            await say(inbox, "hello", chat="owner/b", id=f"b{number}")
        await eventually(lambda: _all(client, FINE, 3), within_s=60, what="the other chat's answers")
        assert await replies(client, AWAY) == [], "the other chat did not wait for the first one's end"
        result = lambda: [news for _, news in seen.news if isinstance(news, ProgressEvent)]  # noqa: E731
        await eventually(result)
        await eventually(lambda: _given_up(client), within_s=60)
    apology, answer = await replies(client, AWAY)
    assert "could not be reached" in apology
    assert "reference" in apology
    assert answer == "fine"


async def _given_up(client: RedisClient) -> bool:
    """Let more time than the age limit pass, also while the turn waits for its next attempt."""
    await client.command("HSET", keys.session(AWAY), "away", 1)
    if not await client.command("HEXISTS", keys.leases("turns"), keys.turn(AWAY)):
        await client.command("ZADD", keys.queue("turns"), "XX", 1, keys.turn(AWAY))
    return await _all(client, AWAY, 2)


async def _all(client: RedisClient, session: str, many: int) -> bool:
    return len(await replies(client, session)) >= many
