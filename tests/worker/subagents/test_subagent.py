"""What a subagent is: the same engine with less of everything. A real Valkey, a scripted model server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from shared.messages.codec import encode
from shared.messages.transcript import ToolEntry
from shared.settings import AgentSettings, BudgetSettings, ModelSettings, Secret, Settings
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import MemoryStore
from shared.store.turns.queue import Claim, SubagentWork
from tests.helpers.children import SESSION, task
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.turn_borders import MemoryJournal
from worker.agent.turn import AgentResult
from worker.turn.journal import LeaseJournal
from worker.turn.turn_agent import NOT_FOR_SUBAGENTS, TurnAgent

Do = Callable[..., Awaitable[tuple[AgentResult, MemoryJournal]]]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture
async def do(client: RedisClient, server: ScriptedOpenAI, tmp_path: Path) -> AsyncIterator[Do]:
    """Lets a subagent of some settings do a task."""
    server.reset()
    made: list[TurnAgent] = []

    async def run(
        *answers: Answer, context: str = "", agent: dict[str, Any] | None = None, **sections: Any
    ) -> tuple[AgentResult, MemoryJournal]:
        server.script(*answers)
        settings = Settings(
            model=ModelSettings(
                name="openai/usual", api_base=server.base_url, api_key=Secret("sk-x"), client="direct", retry_waits_s=()
            ),
            agent=AgentSettings(dir=tmp_path, timezone="UTC", **(agent or {})),
            workspace=WorkspaceSettings(root=tmp_path / "workspaces"),
            **sections,
        )
        made.append(TurnAgent(settings, client, MemoryStore(client)))
        asked = replace(task("aaaaaaaa"), context=context)
        work = SubagentWork(encode(asked), 0, 0, 1, 0, (), "", 0, 0)
        claim = Claim("sub:aaaaaaaa", "worker", "1", 0, False, None, 0, work)
        journal = MemoryJournal()
        return await made[-1].run_subagent(claim, asked, cast(LeaseJournal, journal)), journal

    yield run
    for one in made:
        await one.close()


def results(journal: MemoryJournal) -> list[str]:
    return [entry.content for entry in journal.entries if isinstance(entry, ToolEntry)]


async def test_it_sees_its_task_and_nothing_of_the_conversation(do: Do, server: ScriptedOpenAI) -> None:
    """A short system text, the task with its context, and where and when it is."""
    await do(Answer(text="gold"), context="the map is in map.txt")
    [request] = server.requests()
    system, task_message = request.body["messages"]
    assert "You are a subagent" in system["content"]
    assert task_message["content"].startswith("look it up\n\n# Context\n\nthe map is in map.txt")


async def test_it_has_the_tools_of_a_turn_but_those_that_reach_out(do: Do, server: ScriptedOpenAI) -> None:
    """It says nothing to anybody, starts none of its own, plans nothing; it never has one that a turn has not."""
    await do(Answer(text="gold"))
    [request] = server.requests()
    offered = {tool["function"]["name"] for tool in request.body["tools"]}
    assert not offered & NOT_FOR_SUBAGENTS
    assert {"read_file", "write_file", "web_search"} <= offered


async def test_a_tool_that_it_does_not_have_is_an_error_for_it(do: Do) -> None:
    """Depth 1, whatever a model makes up."""
    _, journal = await do(Answer(role="user", calls=[Call("spawn", '{"task": "more"}')]), Answer(text="gold"))
    [error] = results(journal)
    assert "no tool named 'spawn'" in error
    assert journal.effects == []


async def test_its_files_are_the_workspace_of_its_session_without_memory(do: Do, tmp_path: Path) -> None:
    """What it writes the session's turns find; MEMORY.md and HISTORY.md are not there."""
    _, journal = await do(
        Answer(
            role="user",
            calls=[
                Call("write_file", '{"path": "found.txt", "content": "gold"}', "c1"),
                Call("read_file", '{"path": "MEMORY.md"}', "c2"),
                Call("write_file", '{"path": "memory.md", "content": "x"}', "c3"),
                Call("list_dir", "{}", "c4"),
            ],
        ),
        Answer(text="done"),
    )
    _, memory, written, listed = results(journal)
    assert "has no memory" in memory
    assert "has no memory" in written
    assert "MEMORY.md" not in listed
    assert [path.read_text() for path in tmp_path.rglob("found.txt")] == ["gold"]


async def test_it_ends_after_its_rounds(do: Do) -> None:
    """15 by default, fewer than a turn's."""
    again = Answer(role="", times=0, calls=[Call("current_time")])
    result, _ = await do(again, agent={"subagent_rounds": 2})
    assert (result.outcome, result.rounds) == ("round_cap", 2)


async def test_what_it_uses_counts_for_its_chat(do: Do, client: RedisClient) -> None:
    """And a chat without budget gets no further call."""
    budget = BudgetSettings(tokens_per_day=1)
    await do(Answer(text="gold"), budget=budget)
    assert (await Spending(client).read(SESSION)).tokens > 0
    result, _ = await do(Answer(text="gold"), budget=budget)
    assert result.outcome == "budget"
