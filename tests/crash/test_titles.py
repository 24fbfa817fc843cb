"""Titles of chats on real workers: a call that hangs or dies harms nothing but the title."""

from __future__ import annotations

import psutil

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.sessions.chats import Chats
from shared.store.turns.inbox import Inbox
from tests.crash.test_long_conversation import answered
from tests.helpers.build import say
from tests.helpers.fleet import replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
JOB = f"title:{SESSION}"
ABOUT_A_CHAT = r"\[chat [0-9a-f]{12}\]"


async def titler(client: RedisClient) -> psutil.Process | None:
    """The worker process that gives the chat its title now."""
    lease = await client.command("HGET", keys.leases("jobs"), JOB)
    owner = (lease or b"").decode().partition(":")[0]
    pids = [found.pid for found in await list_processes(client) if owner and owner.startswith(found.name)]
    return psutil.Process(pids[0]) if pids else None


async def test_a_worker_killed_at_a_title_harms_nothing(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """While the call hangs the next message is answered; after kill -9 another worker asks again, once."""
    hangs = Answer(match=ABOUT_A_CHAT, times=1, first_s=60, text="Never")
    model.script(hangs, Answer(match=ABOUT_A_CHAT, text='Title: **"Otters"**'))
    settings = {"AGENT__TITLES": "true", "MODEL__CLIENT": "direct"}
    await warm(*[spawn("worker", **settings) for _ in range(2)])
    inbox = Inbox(client)
    await say(inbox, "Do otters sleep?")
    await answered(client, 1)
    doomed = await eventually(lambda: titler(client), within_s=60)
    await eventually(lambda: len(model.requests()) == 2, within_s=60)
    await say(inbox, "And seals?")
    await answered(client, 2)
    doomed.kill()

    async def titles() -> list[str]:
        if await client.command("HGET", keys.leases("jobs"), JOB) is None:
            # It rests for a minute after a crash; a test does not.
            await client.command("ZADD", keys.queue("jobs"), "XX", 1, JOB)
        shown = [row.title for row in await Chats(client).latest("web", "owner")]
        return shown if shown == ["Otters"] else []

    await eventually(titles, within_s=60, every_s=0.1)
    await say(inbox, "And crabs?")
    await answered(client, 3)
    assert await replies(client, SESSION) == ["echo: Do otters sleep?", "echo: And seals?", "echo: And crabs?"]
    assert len(model.requests()) == 5, "three answers, a title that died, and one"
    assert not any(request.body.get("tools") for request in model.requests() if _asks_for_title(request.body))


def _asks_for_title(body: dict[str, object]) -> bool:
    return "You name chats for a list" in str(body["messages"])
