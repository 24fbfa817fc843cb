"""A fleet under load."""

from __future__ import annotations

import asyncio

from shared.embedded import EmbeddedValkey
from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message, say
from tests.helpers.fleet import history, replies, warm, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually


async def leased(client: RedisClient) -> int:
    return int(await client.command("HLEN", keys.leases("turns")))


async def test_three_hundred_sessions_run_at_the_same_time_on_two_workers(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """No cap but the slots: 300 turns hold 300 leases at once (stock arq stops at 100), and all ask their model."""
    model.script(Answer(text="done", held=True, times=0))
    await warm(*[spawn("worker", WORKER__TURNS="200") for _ in range(2)])
    inbox = Inbox(client)
    await asyncio.gather(*(say(inbox, "go", chat=f"owner/{i}") for i in range(300)))
    await eventually(lambda: model.stats()["open"] == 300, within_s=60, every_s=0.1, what="300 calls at once")
    assert await leased(client) == 300
    model.release()
    await eventually(lambda: _all_answered(client, 300), within_s=60, every_s=0.2)
    assert model.stats()["requests"] == 300, "every turn made its one call"


async def _all_answered(client: RedisClient, many: int) -> bool:
    if await leased(client) or await client.command("ZCARD", keys.queue("turns")):
        return False
    for i in range(many):
        assert await replies(client, f"web:owner/{i}") == ["done"]
    return True


async def test_nothing_is_lost_or_doubled_when_redis_restarts_under_load(
    valkey: EmbeddedValkey, client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Processes stay up; every accepted message is answered once, in order, across two hard restarts of the server."""
    await client.command("CONFIG", "SET", "appendfsync", "always")
    fleet = [spawn("worker", WORKER__LEASE_S="3", WORKER__TURNS="50") for _ in range(2)]
    await workers(client, 2)
    model.script(Answer(held=True, times=0))
    chats = 20
    sent: dict[int, list[str]] = {chat: [] for chat in range(chats)}
    inbox = Inbox(client)

    async def talk(chat: int) -> None:
        for n in range(8):
            text = f"chat {chat} message {n}"
            await inbox.ingest(message(text, chat=f"owner/{chat}", id=f"{chat}-{n}"), retry_for_s=30)
            sent[chat].append(text)

    async def break_redis() -> None:
        for _ in range(2):
            await eventually(lambda: model.stats()["open"], what="turns that wait for their model")
            await asyncio.to_thread(valkey.kill)
            await asyncio.to_thread(valkey.start)
            model.release()
            model.reset()
            model.script(Answer(held=True, times=0))
        model.release()

    await asyncio.gather(break_redis(), *(talk(chat) for chat in range(chats)))
    await eventually(lambda: _quiet(client), within_s=60, every_s=0.1)
    for chat in range(chats):
        words = [e.content for e in await history(client, f"web:owner/{chat}") if isinstance(e, UserEntry)]
        assert words == sent[chat]
    assert all(process.alive for process in fleet)
    assert all("worker ended" not in process.log for process in fleet), "no worker died"


async def _quiet(client: RedisClient) -> bool:
    return int(await client.command("ZCARD", keys.queue("turns"))) == 0
