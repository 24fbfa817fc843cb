"""A gateway killed at each named point of taking a message, in the first, the middle and the last of three."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.crash_points import VARIABLE
from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import TOKENS, Client, answers, free_port
from tests.gateway.harness import client as connected
from tests.helpers.fleet import history, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

MESSAGES = (1, 2, 3)
LINES = 2 * len(MESSAGES)
KNOWN_BEFORE = {"before_ingest": False, "after_ingest": True}
"""Whether the store has the message when the gateway dies: the second time it is a duplicate, or new."""


@pytest.mark.parametrize("point", KNOWN_BEFORE)
async def test_a_gateway_killed_while_it_takes_a_message_leaves_one_turn_and_one_reply(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, point: str
) -> None:
    """Nobody was told "accepted", so the client connects again and sends the same id again: there is one turn, one
    reply, and the chat's line numbers have no hole and no double."""
    armed = tmp_path / "crash"
    port = free_port()
    address = f"127.0.0.1:{port}"

    async def start() -> Process:
        settings = {"WEB__PORT": str(port), "WEB__TOKENS__OWNER": TOKENS["owner"]}
        started = spawn("gateway", env={VARIABLE: str(armed)}, **settings)
        await eventually(lambda: answers(address), within_s=60, what="the gateway")
        return started

    worker = spawn("worker", MODEL__CLIENT="direct")
    gateway = await start()
    await warm(worker)
    for hit in MESSAGES:
        chat = f"chat{hit}"
        seen: list[int] = []
        for number in MESSAGES:
            if number == hit:
                async with connected(address) as person:
                    await _resume(person, chat, max(seen, default=0))
                    armed.write_text(f"{point} 1")
                    await person.send("message", id=f"{hit}-{number}", chat=chat, text=f"message {number}")
                    assert await person.closed() == 1006, "the gateway was killed"
                    assert not [frame for frame in person.seen if frame["type"] == "accepted"]
                    seen += person.seqs(chat)
                assert not armed.exists()
                gateway.wait()
                claimed = int(await client.command("HGET", keys.session(f"web:owner/{chat}"), "n") or 0)
                assert claimed == (number if KNOWN_BEFORE[point] else number - 1)
                gateway = await start()
            async with connected(address) as person:
                await _resume(person, chat, max(seen, default=0))
                await person.send("message", id=f"{hit}-{number}", chat=chat, text=f"message {number}")
                accepted = await person.answer(f"{hit}-{number}")
                assert (accepted["type"], accepted["turn"]) == ("accepted", number)
                await _all_lines(person, chat, seen, 2 * number)
                seen += person.seqs(chat)
        assert seen == list(range(1, LINES + 1))
        session = f"web:owner/{chat}"
        assert await replies(client, session) == [f"echo: message {number}" for number in MESSAGES]
        message = [entry.content for entry in await history(client, session) if isinstance(entry, UserEntry)]
        assert message == [f"message {number}" for number in MESSAGES]
    assert len(model.requests()) == len(MESSAGES) ** 2


async def _resume(person: Client, chat: str, after: int) -> None:
    await person.send("resume", chat=chat, after=after)
    await person.next("resumed", chat=chat)


async def _all_lines(person: Client, chat: str, seen: list[int], last: int) -> None:
    if last not in seen:
        await person.shown(chat, last)
