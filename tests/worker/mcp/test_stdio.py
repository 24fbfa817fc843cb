"""MCP servers that are processes. Where both sides speak with each other, the server is made with the official library;
where a test is about the process, with the standard library alone."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import structlog
from structlog.testing import capture_logs

from shared.log import configure
from shared.settings import McpServerSettings, Secret
from shared.settings.sections.processes import LogSettings
from tests.helpers.processes import ROOT
from tests.helpers.wait import eventually
from tests.worker.mcp.peers import LONG_S, adds, alive, library_peer, noted, peer, supervisors, working
from worker.mcp.wire import MESSAGE_BYTES


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Collect what this process logs, from debug on."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    out = io.StringIO()
    configure(LogSettings(format="json", level="debug"), process="test", stream=out)
    yield out
    root.handlers[:], root.level = before, level
    structlog.reset_defaults()


async def test_the_tools_of_a_server_are_listed_and_called(tmp_path: Path) -> None:
    """By name, with what they take; a result says whose it is."""
    async with working(peer=library_peer(tmp_path)) as worker:
        box = await worker.boxes.current()
        names = [spec.name for spec in box.specs()]
        assert names == sorted(names)
        [add] = [spec for spec in box.specs() if spec.name == "mcp_peer_add"]
        assert add.description == "[of the MCP server 'peer'] Adds two numbers."
        assert add.parameters["properties"]["a"] == {"type": "integer", "description": "one"}
        outcome = await worker.call("mcp_peer_add", a=20, b=22)
    assert outcome.ok
    first, mark, answer, end = outcome.content.split("\n")
    assert "'peer'" in first
    assert answer == "42"
    assert mark.removeprefix("[mcp ") == end.removeprefix("[end ")


async def test_arguments_that_do_not_fit_never_reach_the_server(tmp_path: Path) -> None:
    """The model reads what is wrong with them."""
    async with working(peer=peer(tmp_path)) as worker:
        missing = await worker.call("mcp_peer_add", a=1)
        wrong = await worker.call("mcp_peer_add", a=1, b="two")
    assert missing.outcome == wrong.outcome == "bad_arguments"
    assert "missing required field `b`" in missing.content
    assert "Expected `integer`, got `string` - at `$.b`" in wrong.content


async def test_a_server_that_dies_in_a_call_is_there_for_the_next_one(tmp_path: Path) -> None:
    """The running call says what happened, and that nobody knows whether it did anything."""
    async with working(peer=library_peer(tmp_path)) as worker:
        outcome = await worker.call("mcp_peer_die")
        assert outcome.outcome == "failed"
        assert "the MCP server 'peer' ended before it answered 'die'" in outcome.content
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok


@pytest.mark.parametrize("who", ["server", "supervisor"])
async def test_a_server_that_was_killed_while_idle_is_there_for_the_next_call(tmp_path: Path, who: str) -> None:
    """And nothing of the old one is left, also when it was the supervisor that was killed."""
    async with working(peer=peer(tmp_path)) as worker:
        await worker.names()
        old = int(await noted(tmp_path, "started"))
        [supervisor] = supervisors()
        os.kill(old if who == "server" else supervisor, signal.SIGKILL)
        await eventually(lambda: not alive(old) and not alive(supervisor), within_s=LONG_S)
        await eventually(lambda: (tmp_path / "started").read_text() != str(old), within_s=LONG_S)
        await worker.up()
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok


async def test_a_call_that_hangs_ends_at_its_limit_and_the_server_learns_of_it(tmp_path: Path) -> None:
    """The session lives on: the next call is answered by the same process."""
    async with working(peer=library_peer(tmp_path, timeout_s=2.0)) as worker:
        outcome = await worker.call("mcp_peer_hang")
        assert outcome.outcome == "timeout"
        await noted(tmp_path, "cancelled")
        pid = (tmp_path / "started").read_text()
        await eventually(partial(adds, worker), within_s=LONG_S)  # a stall may cost a try its two seconds
        assert (tmp_path / "started").read_text() == pid


async def test_a_cancelled_call_is_cancelled_in_the_server(tmp_path: Path) -> None:
    """A turn that is stopped leaves nothing running; calls of other turns go on."""
    async with working(peer=library_peer(tmp_path)) as worker:
        running = asyncio.create_task(worker.call("mcp_peer_hang"))
        await noted(tmp_path, "hangs")
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await noted(tmp_path, "cancelled")
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok


async def test_a_server_sees_nothing_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is PATH, LANG and its own variables; and its own secrets do not come back to the model."""
    monkeypatch.setenv("SHOAL_MODEL__API_KEY", "sk-canary-of-the-worker")
    monkeypatch.setenv("HOME", "/home/of-the-worker")
    monkeypatch.setenv("LANG", "C.UTF-8")
    settings = peer(tmp_path, env={"PEER_KEY": Secret("sk-canary-of-the-server"), "PLAIN": Secret("short")})
    async with working(peer=settings) as worker:
        outcome = await worker.call("mcp_peer_environ")
    seen = json.loads(outcome.content.split("\n")[2])
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "LANG", "PEER_KEY", "PLAIN"}
    assert (seen["PEER_KEY"], seen["PLAIN"]) == ("***", "short")


async def test_what_a_server_writes_to_its_stderr_is_in_the_log_without_secrets(
    tmp_path: Path, logged: io.StringIO
) -> None:
    """At debug, for an operator who looks for a fault."""
    settings = peer(tmp_path, env={"PEER_KEY": Secret("sk-canary-of-the-server")})
    async with working(peer=settings) as worker:
        await worker.call("mcp_peer_shout")
        await eventually(lambda: "the canary is ***" in logged.getvalue(), within_s=LONG_S)
    assert "sk-canary" not in logged.getvalue()
    assert [json.loads(line)["level"] for line in logged.getvalue().splitlines() if "canary" in line] == ["debug"]


async def test_nothing_a_server_started_outlives_a_drain(tmp_path: Path) -> None:
    """Also what left its process group."""
    async with working(peer=peer(tmp_path)) as worker:
        pids = [int(pid) for pid in (await worker.call("mcp_peer_child")).content.split("\n")[2].split()]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))


async def test_nothing_a_server_started_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves a worker no time for anything: the end of its pipe is what the supervisor sees."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.worker.mcp.peers import Worker, peer\n"
        "async def main():\n"
        "    worker = Worker(peer=peer(Path(sys.argv[1])))\n"
        "    await worker.call('mcp_peer_child')\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        pids = [int(pid) for pid in (await noted(tmp_path, "children")).split()]
        pids += [child.pid for child in psutil.Process(worker.pid).children(recursive=True)]
        assert len(set(pids)) >= 4
        worker.kill()
        await eventually(lambda: not any(map(alive, pids)), within_s=LONG_S)


async def test_a_server_that_cannot_be_started_costs_a_turn_nothing() -> None:
    """The turn goes on without its tools, and the operator reads why."""
    with capture_logs() as logs:
        async with working(peer=McpServerSettings(command=("no-such-program",))) as worker:
            assert await worker.names() == []
            await eventually(lambda: "cannot be started" in worker.servers.details()["mcp.peer"], within_s=LONG_S)
            await eventually(lambda: any(one["event"] == "mcp server unavailable" for one in logs), within_s=LONG_S)
    assert len([one for one in logs if one["event"] == "mcp server unavailable"]) == 1, "an outage is logged once"


async def test_a_server_that_does_not_answer_keeps_a_turn_waiting_once(tmp_path: Path) -> None:
    """For a bounded time; the next turn does not wait, and has its tools when it is there at last."""
    command = f'while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exec {sys.executable} "$@"'
    settings = peer(tmp_path)
    slow = McpServerSettings(command=("sh", "-c", command, "sh", *settings.command[1:]), connect_s=120.0)
    async with working(first_list_s=0.05, peer=slow) as worker:
        assert await worker.names() == []
        worker.servers._first_list_s = 1e6
        assert await worker.names() == []
        empty = await worker.boxes.current()
        assert await worker.boxes.current() is empty
        (tmp_path / "go").touch()
        await worker.up()
        assert "mcp_peer_add" in await worker.names()


async def test_a_list_that_changed_is_offered_from_the_next_turn_on(tmp_path: Path) -> None:
    """And as long as it has not, a model is offered the very same."""
    async with working(peer=library_peer(tmp_path)) as worker:
        first = await worker.boxes.current()
        assert await worker.boxes.current() is first
        assert (await worker.call("mcp_peer_grow")).ok

        async def grown() -> bool:
            return "mcp_peer_zebra" in await worker.names()

        await eventually(grown, within_s=LONG_S)
        assert [spec.name for spec in first.specs()].count("mcp_peer_zebra") == 0, "a running turn keeps its tools"
        assert (await worker.call("mcp_peer_zebra")).ok


async def test_a_server_that_is_away_keeps_its_place_in_the_list(tmp_path: Path) -> None:
    """The offered tools do not change with every hiccup; a call reports that the server is unavailable."""
    async with working(peer=peer(tmp_path)) as worker:
        box = await worker.boxes.current()
        (tmp_path / "tools.json").write_text("this ends the next start")
        os.kill(int(await noted(tmp_path, "started")), signal.SIGKILL)
        await eventually(lambda: worker.servers.details()["mcp.peer"].startswith("away"), within_s=LONG_S)
        assert await worker.boxes.current() is box
        outcome = await worker.call("mcp_peer_add", a=1, b=2)
        assert outcome.outcome == "failed"
        assert "the MCP server 'peer' is unavailable" in outcome.content
        (tmp_path / "tools.json").unlink()
        await worker.up()
        assert await worker.boxes.current() is box
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok


async def test_a_message_without_end_ends_the_server_and_not_the_worker(tmp_path: Path) -> None:
    """It would fill the memory of all other turns."""
    async with working(peer=library_peer(tmp_path)) as worker:
        outcome = await worker.call("mcp_peer_huge", bytes=MESSAGE_BYTES + 200_000)
        assert outcome.outcome == "failed"
        assert "ended before it answered" in outcome.content
        assert (await worker.call("mcp_peer_huge", bytes=MESSAGE_BYTES // 2)).ok


async def test_a_line_that_is_no_message_is_passed_over(tmp_path: Path, logged: io.StringIO) -> None:
    """Servers print to their standard output by mistake; nothing of it is in the log."""
    settings = peer(tmp_path)
    chatty = McpServerSettings(command=("sh", "-c", 'echo this is no message; exec "$@"', "sh", *settings.command))
    async with working(peer=chatty) as worker:
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok
    assert "mcp server ready" in logged.getvalue()
    assert "this is no message" not in logged.getvalue()
