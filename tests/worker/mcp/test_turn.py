"""Tools of MCP servers in whole turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from shared.messages.transcript import ToolEntry
from shared.metrics import TOOL_CALLS
from shared.settings import McpServerSettings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message, say
from tests.helpers.fleet import replies, workers
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import ROOT
from tests.helpers.wait import eventually
from tests.reports.provider import DATA, provider, refusal
from tests.worker.mcp.peers import LONG_S, PEER, alive, library_peer, noted, raw_peer
from tests.worker.mcp.strict_provider import faults
from tests.worker.turn.test_turn_agent import Ask, ask, server

__all__ = ["ask", "model", "model_server", "server", "spawn"]

ADD = Answer(role="user", times=0, calls=[Call("mcp_peer_add", '{"a": 20, "b": 22}')])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


async def test_a_model_calls_a_tool_of_a_server(ask: Ask, server: ScriptedOpenAI, notes: Path) -> None:
    """It is offered behind the built-in tools, the same bytes in each turn, and its result goes back to the model."""
    counted = TOOL_CALLS.labels("mcp_peer", "ok")._value
    before = counted.get()
    for _ in range(2):
        result = await ask(ADD, Answer(role="tool", text="it is 42"), mcp={"peer": library_peer(notes)})
        assert result.outcome == "done"
    [called] = [entry for entry in result.entries if isinstance(entry, ToolEntry)]
    assert (called.name, "\n42\n" in called.content) == ("mcp_peer_add", True)
    first, _, second, after = [request.body for request in server.requests()]
    assert after["messages"][-1]["content"] == called.content
    assert first["tools"] == second["tools"]
    assert counted.get() == before + 2, "one label for all tools of a server: it can have hundreds"
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert names.index("read_file") < names.index("mcp_peer_add")


async def test_a_turn_goes_on_without_a_server_that_is_not_there(ask: Ask, server: ScriptedOpenAI) -> None:
    """Nothing wrong reaches the model: it is offered what there is."""
    result = await ask(mcp={"peer": McpServerSettings(command=("no-such-program",))})
    assert result.outcome == "done"
    [request] = server.requests()
    assert not [tool for tool in request.body["tools"] if tool["function"]["name"].startswith("mcp_")]


def test_a_worker_without_servers_does_not_have_the_library() -> None:
    """Neither its memory nor its start-up time."""
    script = (
        "import asyncio, sys\n"
        "import worker.arq.settings\n"
        "from worker.agent.tools.toolbox import Toolbox\n"
        "from worker.mcp.servers import McpServers, Toolboxes\n"
        "async def turn():\n"
        "    servers = McpServers({})\n"
        "    await Toolboxes((), servers, Toolbox).current()\n"
        "    assert servers.details() == {}\n"
        "    assert len(asyncio.all_tasks()) == 1\n"
        "    await servers.close()\n"
        "asyncio.run(turn())\n"
        "print(*(name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'httpx2', 'pydantic')))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("", 0), ran.stderr


async def test_a_fleet_uses_a_server_and_a_killed_worker_leaves_none(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, notes: Path
) -> None:
    """Settings come from the environment; the presence record says that the server is there. What a server started is
    gone after SIGKILL to the worker, and the next worker has a server of its own."""
    model.script(ADD, Answer(role="tool", text="it is 42"))
    command = ",".join([sys.executable, PEER, str(notes)])
    spawn("worker", MODEL__CLIENT="direct", MCP__PEER__COMMAND=command, MCP__PEER__SANDBOX="false")
    [one] = await workers(client, 1)

    async def there() -> bool:
        [found] = await workers(client, 1)
        return found.details["mcp.peer"].endswith(" tools")

    await eventually(there, within_s=LONG_S)
    await say(Inbox(client), "add them")
    await eventually(lambda: _answered(client), within_s=LONG_S)
    old = int(await noted(notes, "started"))
    below = [child.pid for child in psutil.Process(one.pid).children(recursive=True)]
    assert old in below
    (notes / "started").unlink()
    os.kill(one.pid, signal.SIGKILL)
    await eventually(lambda: not any(map(alive, below)), within_s=LONG_S)
    assert int(await noted(notes, "started")) != old


async def _answered(client: RedisClient) -> bool:
    return await replies(client, "web:owner/a") == ["it is 42"]


async def test_a_worker_that_drains_takes_its_servers_with_it(client: RedisClient, spawn: Spawn, notes: Path) -> None:
    """And leaves with code 0."""
    command = ",".join([sys.executable, PEER, str(notes)])
    worker = spawn("worker", MODEL__CLIENT="direct", MCP__PEER__COMMAND=command, MCP__PEER__SANDBOX="false")
    await workers(client, 1)
    pid = int(await noted(notes, "started"))
    worker.terminate()
    assert worker.wait(LONG_S) == 0
    assert not alive(pid)


@pytest.mark.parametrize("client_kind", ["direct", "litellm"])
async def test_a_model_server_that_refuses_bad_schemas_answers(ask: Ask, notes: Path, client_kind: str) -> None:
    """One tool of one server does not end every conversation of the worker."""
    tools = msgspec.json.decode((DATA / "m-dangling-ref.json").read_bytes())["tools"]
    offered: list[str] = []
    chunk = {"choices": [{"index": 0, "delta": {"content": "hello to you"}, "finish_reason": "stop"}]}
    hello = [f"data: {json.dumps(chunk)}", "data: [DONE]"]

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        offered[:] = [tool["function"]["name"] for tool in body["tools"]]
        found = [fault for tool in body["tools"] for fault in faults(tool["function"]["parameters"])]
        return (400, refusal(f"Invalid schema: {found}")) if found else (200, hello)

    async with provider(answer) as strict:
        model = {"api_base": strict.settings().api_base, "client": client_kind}
        result = await ask(incoming=message("hello"), model=model, mcp={"peer": raw_peer(notes, *tools)})
    assert result.content == "hello to you"
    assert {"mcp_peer_good", "mcp_peer_pick", "mcp_peer_search"} <= set(offered)


async def test_a_turn_does_not_repeat_a_call_whose_result_cannot_be_read(
    ask: Ask, server: ScriptedOpenAI, notes: Path
) -> None:
    """The model reads that it ran, and decides."""
    calls = Answer(role="user", calls=[Call("mcp_peer_send", "{}")])
    peers = {"peer": raw_peer(notes, {"name": "send", "inputSchema": {"type": "object"}}, result={"content": None})}
    result = await ask(calls, Answer(role="tool", text="I look first"), mcp=peers)
    assert result.content == "I look first"
    assert len((notes / "calls").read_text().splitlines()) == 1
    assert "ran 'send', but its answer could not be read" in server.requests()[-1].body["messages"][-1]["content"]
