"""A worker inside the caller's process, with its tools and hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

import shoal
from shared.errors import BadInput
from shared.settings import Settings, load
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce, list_processes
from shoal.plugin import AgentHook, Safety, ToolContext
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, ToolCallRequest
from worker.llm import registry


class NoArguments(msgspec.Struct, frozen=True):
    """None."""


class Secret:
    """A tool of the caller's own, with state of its own."""

    name = "secret_word"
    description = "The secret word."
    parameters = NoArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    def __init__(self, word: str) -> None:
        self.word = word

    async def run(self, arguments: NoArguments, context: ToolContext) -> str:
        return self.word


class Signed(AgentHook):
    """Signs every answer."""

    async def finalize_content(self, text: str) -> str:
        return f"{text} (signed)"


class ToolCaller:
    """A model that calls the tool, then says what came back."""

    name = "demo"

    async def preload(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        last = request.messages[-1]
        if last["role"] == "tool":
            return LLMResponse(content=f"It is {last['content']}.")
        assert any(tool.name == "secret_word" for tool in request.tools)
        return LLMResponse(content=None, tool_calls=(ToolCallRequest("1", "secret_word", {}, "{}"),))


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A worker beside a program sets its log up."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return load({"SHOAL_REDIS__URL": redis_url, "SHOAL_DATA__DIR": str(tmp_path), "SHOAL_TOOLS__EXEC": "false"})


async def test_a_call_brings_its_tools_and_hooks(
    client: RedisClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, in this process, with nothing else running; afterwards no worker is left."""
    monkeypatch.setitem(registry.CLIENTS, "demo", f"{__name__}:ToolCaller")
    answer = await shoal.process_direct("What is it?", settings=settings, tools=[Secret("mellon")], hooks=[Signed()])
    assert answer == "It is mellon. (signed)"
    assert await list_processes(client) == []


async def test_several_calls_share_a_worker(
    client: RedisClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation goes on from call to call; commands apply as well."""
    monkeypatch.setitem(registry.CLIENTS, "demo", f"{__name__}:ToolCaller")
    async with shoal.local_worker(settings=settings, tools=[Secret("x")], hooks=[Signed()]) as own:
        assert (await shoal.process_direct("hello", settings=own)).endswith("(signed)")
        assert "/memory" in await shoal.process_direct("/help", settings=own)
        assert (await shoal.process_direct("hello again", settings=own)).endswith("(signed)")
        [worker] = await list_processes(client)
        assert worker.kind == "worker"


async def test_where_another_worker_runs_tools_of_a_call_are_refused(client: RedisClient, settings: Settings) -> None:
    """It would take the message and not know the tool."""
    await announce(client, Presence(kind="worker", name="w1", host="h", pid=1, started_at=1, version="1"))
    with pytest.raises(BadInput, match="'w1' serves the same chats"):
        await shoal.process_direct("hello", settings=settings, tools=[Secret("x")])
    assert await client.command("EXISTS", "shoal:{0ax}:inbox:cli:direct") == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "calculate"}, "has the name of another one"),
        ({"name": "exec"}, "has the name of another one"),
        ({"name": "no spaces"}, "has a name that a model cannot call"),
        ({"description": ""}, "has no description"),
        ({"safety": "harmless"}, "has the safety 'harmless'"),
        ({"parameters": dict}, "not a msgspec.Struct"),
    ],
)
async def test_a_tool_that_cannot_be_offered_is_refused_before_anything_is_sent(
    client: RedisClient, settings: Settings, change: dict[str, Any], why: str
) -> None:
    """With the reason."""
    tool = Secret("x")
    for name, value in change.items():
        setattr(tool, name, value)
    with pytest.raises(BadInput, match=why):
        await shoal.process_direct("hello", settings=settings, tools=[tool])
    assert await client.command("DBSIZE") == 0
