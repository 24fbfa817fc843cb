"""Real MCP servers for tests, and what a worker has of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil

from shared.settings import McpServerSettings
from tests.helpers.scripted_model import call
from tests.helpers.wait import eventually
from worker.agent.ports import NULL_PORTS, Files
from worker.agent.tools.tool import ToolContext, ToolOutcome
from worker.agent.tools.toolbox import Toolbox
from worker.mcp.servers import McpServers, Toolboxes

PEER = str(Path(__file__).with_name("peer.py"))
RAW_PEER = str(Path(__file__).with_name("raw_peer.py"))
LONG_S = 30.0
"""For a slow, loaded machine."""


def peer(notes: Path, *words: str, **more: Any) -> McpServerSettings:
    """The settings of a server that is a process, outside the sandbox: tests look at its pids and its notes in /tmp."""
    return McpServerSettings(command=(sys.executable, PEER, str(notes), *words), **{"sandbox": False, **more})


def library_peer(notes: Path, **more: Any) -> McpServerSettings:
    """The same, made with the official library: for tests of what both sides say to each other."""
    return peer(notes, "library", **more)


def raw_peer(notes: Path, *tools: Any, result: Any = None, **more: Any) -> McpServerSettings:
    """The settings of a server that lists these tools, and answers each call with `result`, well-formed or not."""
    answers = {"tools/list": {"result": {"tools": tools}}, "tools/call": {"result": result}}
    (notes / "answers.json").write_text(json.dumps(answers))
    return McpServerSettings(command=(sys.executable, RAW_PEER, str(notes)), **{"sandbox": False, **more})


class Worker:
    """The servers and the toolbox of a worker."""

    def __init__(
        self, first_list_s: float = LONG_S, reserved_names: tuple[str, ...] = (), **servers: McpServerSettings
    ) -> None:
        self.servers = McpServers(servers, reserved_names=reserved_names, first_list_s=first_list_s)
        self.boxes = Toolboxes((), self.servers, Toolbox)

    async def names(self) -> list[str]:
        return [spec.name for spec in (await self.boxes.current()).specs()]

    async def call(self, tool: str, files: Files = NULL_PORTS, **arguments: Any) -> ToolOutcome:
        box = await self.boxes.current()
        context = ToolContext(session="s", turn=7, call_id="c1", files=files)
        return await box.call(call(tool, arguments), context)

    async def up(self, server: str = "peer") -> None:
        """Wait until the session is there."""
        await eventually(lambda: self.servers.details()[f"mcp.{server}"].endswith("tools"), within_s=LONG_S)


@contextlib.asynccontextmanager
async def working(**more: Any) -> AsyncIterator[Worker]:
    """A worker with these servers; afterwards no task and no process of it is left."""
    before = asyncio.all_tasks()
    worker = Worker(**more)
    try:
        yield worker
    finally:
        await worker.servers.close()
    await eventually(lambda: asyncio.all_tasks() <= before, within_s=LONG_S, what="the end of all tasks")
    await eventually(lambda: supervisors() == [], within_s=LONG_S, what="the end of all processes")


def supervisors() -> list[int]:
    """The processes below this one that stand between a worker and a server."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if (
                any("process_supervisor.py" in word for word in child.cmdline())
                and child.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(child.pid)
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def noted(notes: Path, event: str) -> str:
    """Return what the server has written about an event, once it has happened."""
    file = notes / event
    await eventually(file.exists, within_s=LONG_S, what=f"the event {event!r}")
    return file.read_text()


class HttpPeer:
    """A server over HTTP, started and killed at will on one port."""

    def __init__(self, notes: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._command = [sys.executable, PEER, str(notes), str(port)]
        self._listens = _listens(port)
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = subprocess.Popen(self._command, start_new_session=True)
        await eventually(self._listens, within_s=LONG_S, what="the server")

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(LONG_S)


def _listens(port: int) -> Callable[[], bool]:
    import socket

    def ask() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    return ask


async def adds(worker: Worker) -> bool:
    """Call a tool that answers at once; return whether it did."""
    outcome = await worker.call("mcp_peer_add", a=1, b=2)
    return bool(outcome.ok)
