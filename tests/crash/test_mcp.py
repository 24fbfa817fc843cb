"""The official MCP client against a real gateway and real workers, which die while it waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway, working
from tests.crash.test_approvals import start
from tests.crash.test_worker_death import HELD, WORDS
from tests.gateway.channels.api.asking import named
from tests.gateway.channels.mcp.calling import MODERN, caller, text_of
from tests.helpers.fleet import history, holder, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

ASK = {"message": "hello", "session": "a"}


class Progress:
    """Keeps what a client was told while it waited."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.texts: list[str] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.texts.append(message or "")


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_killed_worker_costs_no_answer(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, mode: str
) -> None:
    """kill -9 while it writes: the answer comes once, and progress is reported with numbers that grow."""
    model.script(HELD)
    await working(spawn, 2)
    _, address = await gateway(spawn, API__MCP="true")
    progress = Progress()
    async with caller(address, mode=mode) as mcp:
        call = asyncio.create_task(mcp.call_tool("ask", ASK, progress_callback=progress))
        await eventually(lambda: any("word5" in text for text in progress.texts), within_s=60)
        (await holder(client, named("a"))).kill()
        model.release()
        result = await asyncio.wait_for(call, 60)
    assert (text_of(result), await replies(client, named("a"))) == (WORDS, [WORDS])
    assert progress.numbers == sorted(set(progress.numbers))


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_the_same_session_goes_on(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, mode: str) -> None:
    """The second question follows the first in one history."""
    model.script(Answer(match="hello", text="one"), Answer(match="and", text="two"))
    await working(spawn)
    _, address = await gateway(spawn, API__MCP="true")
    async with caller(address, mode=mode) as mcp:
        first = await mcp.call_tool("ask", ASK)
        second = await mcp.call_tool("ask", ASK | {"message": "and then?"})
    assert [text_of(first), text_of(second)] == ["one", "two"]
    assert len(await history(client, named("a"))) == 4


async def test_a_client_that_leaves_stops_the_turn(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """What was written until then stays in the session, which answers the next question."""
    model.script(Answer(match="hello", text="one two three", delta_s=0.2, stall_after=2, times=0), Answer(text="next"))
    await working(spawn)
    _, address = await gateway(spawn, API__MCP="true")
    progress = Progress()
    async with caller(address, mode=MODERN) as mcp:
        call = asyncio.create_task(mcp.call_tool("ask", ASK, progress_callback=progress))
        await eventually(lambda: progress.texts, within_s=60)
        call.cancel()
        await asyncio.wait([call])
        result = await asyncio.wait_for(mcp.call_tool("ask", ASK | {"message": "again"}), 60)
    assert text_of(result) == "next"
    assert (await replies(client, named("a")))[-1] == "next"


async def test_a_tool_that_needs_a_yes_does_not_keep_a_client_waiting(
    spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """A program has no person who could be asked: the call is refused, and the agent answers without it."""
    model.script(
        Answer(match="go", role="tool", text="it was not run", times=0),
        Answer(match="go", role="user", calls=[Call("mark", '{"word": "m"}', "mark1")], times=0),
    )
    await warm(start(spawn, tmp_path, MODEL__CLIENT="direct"))
    _, address = await gateway(spawn, API__MCP="true")
    async with caller(address) as mcp:
        result = await asyncio.wait_for(mcp.call_tool("ask", ASK | {"message": "go"}), 60)
    assert (result.is_error, text_of(result)) == (False, "it was not run")
    assert not (tmp_path / "marks").exists()
