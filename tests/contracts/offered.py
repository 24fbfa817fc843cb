"""Every tool that an agent can be offered, each with what it works on: a new one gets a line in OFFERED."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from shared.confinement import landlock
from shared.errors import ToolFailed
from shared.media.store import MediaStore
from shared.messages.codec import encode
from shared.messages.effects import Effect
from shared.messages.schedule import Misfire, Plan, Schedule, ScheduleStatus
from shared.messages.transcript import UserEntry
from shared.settings import MediaSettings, ToolsSettings
from shared.settings.sections.agents import PluginSettings
from shared.store.sessions.transcripts import TranscriptPage, Transcripts
from shared.store.subagents.subagents import AwaitedSubagent, State
from tests.helpers.need import need
from tests.helpers.plugins import EXAMPLE
from tests.helpers.pod import library
from tests.helpers.runner import RunnerProcess
from tests.helpers.text_files import TextFiles
from tests.helpers.web_server import Asked, Send, WebServer, reply, web_server
from tests.worker.mcp.peers import Worker, noted, peer, supervisors
from tests.worker.sandbox.conftest import tier
from worker.agent.ports import Files
from worker.agent.tools.tool import Safety, Tool, ToolContext
from worker.guards.chats import ChatPolicy
from worker.guards.openat import Access
from worker.guards.workspace import Workspaces
from worker.sandbox.command import CommandLimits, Sandbox
from worker.tools.cron import CronTool
from worker.tools.exec import Exec
from worker.tools.message import MessageTool
from worker.tools.registry import TOOLS, build_tools, plugin_tools
from worker.tools.search_history import SearchHistory
from worker.tools.spawn import SpawnTool
from worker.tools.web import build_web_tools

SESSION: Final = "web:ada/main"
BIG: Final = 1_000_000
FILES: Final = {
    "MEMORY.md": "- Ada likes tea\n",
    "HISTORY.md": "[2026-11-21 14:05] They met.",
    "skills/recap/SKILL.md": "Sum up.",
}

Ask = tuple[Tool, dict[str, Any]]
"""A tool, and arguments for it."""


@dataclass(frozen=True, kw_only=True)
class Offered:
    """A tool, arguments with which it works, its class, and what else its context has.

    `hangs` is a call that never ends, with `hanging` in its context; `begun` waits until it is at work, `over` says
    whether what it works on has noticed its end. `big` is a call that answers with about BIG bytes. The arguments of a
    tool that is not `ours` are described elsewhere.
    """

    tool: Tool
    good: dict[str, Any]
    safety: Safety
    parts: Mapping[str, Any] = field(default_factory=dict)
    hangs: Ask | None = None
    hanging: Mapping[str, Any] = field(default_factory=dict)
    begun: Callable[[], Any] = field(default=lambda: None)
    over: Callable[[], bool] = field(default=lambda: True)
    big: Ask | None = None
    ours: bool = True

    def context(self, files: Files | None = None, **more: Any) -> ToolContext:
        """The call of a turn, with files of its own."""
        given = TextFiles(FILES) if files is None else files
        return ToolContext(
            session=SESSION,
            turn=1,
            call_id="c1",
            channel="web",
            chat_id="ada/main",
            files=given,
            **{**self.parts, **more},
        )


async def never(*_: object, **__: object) -> Any:
    """What somebody does who never answers."""
    return await asyncio.get_running_loop().create_future()


class NeverAnswering(TextFiles):
    """Files on a volume that is away."""

    content = read = replace = entries = names = never


GOOD: Final[dict[str, tuple[Safety, dict[str, Any]]]] = {
    "calculate": ("read_only", {"expression": "1 + 1"}),
    "current_time": ("read_only", {"timezone": "UTC"}),
    "roll_dice": ("read_only", {"count": 2}),
    "read_file": ("read_only", {"path": "MEMORY.md", "offset": 1, "limit": 10}),
    "write_file": ("idempotent", {"path": "MEMORY.md", "content": "- Ada likes coffee"}),
    "edit_file": ("idempotent", {"path": "MEMORY.md", "old_text": "tea", "new_text": "coffee"}),
    "list_dir": ("read_only", {"path": "skills"}),
    "glob": ("read_only", {"pattern": "**/*.md"}),
    "grep": ("read_only", {"words": "likes", "path": "MEMORY.md", "limit": 5}),
}


@contextlib.asynccontextmanager
async def in_the_registry(name: str, _: Path) -> AsyncIterator[Offered]:
    [tool] = build_tools([name])
    safety, good = GOOD[name]
    yield Offered(tool=tool, good=good, safety=safety, hangs=(tool, good), hanging={"files": NeverAnswering(FILES)})


class Effects:
    """Everything is carried out at once."""

    async def carry_out(self, effect: Effect) -> bool:
        return True

    async def border(self) -> None:
        pass


class NoEffectEver(Effects):
    carry_out = never


@contextlib.asynccontextmanager
async def message(folder: Path) -> AsyncIterator[Offered]:
    tool = MessageTool(ChatPolicy(), MediaStore(MediaSettings(dir=folder)), files=4)
    good = {"text": "hello", "media": ["MEMORY.md"], "buttons": ["yes"]}
    yield Offered(
        tool=tool, good=good, safety="idempotent", parts={"effects": Effects()}, hangs=(tool, good),
        hanging={"effects": NoEffectEver()},
    )  # fmt: skip


class Plans:
    """The plans of a chat, in memory."""

    async def add(
        self, text: str, plan: Plan, *, misfire: Misfire, timezone: str, key: str, now_ms: int
    ) -> tuple[Schedule, int]:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ToolFailed(f"{timezone!r} is not a time zone") from None
        made = Schedule(
            id="a1b2", channel="web", chat_id="ada/main", owner="ada", text=text, plan=plan, misfire=misfire,
            timezone=timezone, created_at=now_ms,
        )  # fmt: skip
        return made, now_ms

    async def listed(self) -> Sequence[ScheduleStatus]:
        return ()

    async def remove(self, id: str) -> None:
        pass


class NoPlanEver(Plans):
    add = never


@contextlib.asynccontextmanager
async def cron(_: Path) -> AsyncIterator[Offered]:
    tool = CronTool()
    good = {"action": "add", "message": "Tea!", "every_seconds": 60}
    yield Offered(
        tool=tool, good=good, safety="idempotent", parts={"schedules": Plans()}, hangs=(tool, good),
        hanging={"schedules": NoPlanEver()},
    )  # fmt: skip


class Child:
    """A subagent in a state."""

    def __init__(self, state: State, result: str = "") -> None:
        self._outcome = AwaitedSubagent(state, True, result)

    async def read_awaited(self, id: str) -> AwaitedSubagent | None:
        return self._outcome

    async def detach(self, id: str) -> bool:
        return True


@contextlib.asynccontextmanager
async def spawn(_: Path) -> AsyncIterator[Offered]:
    tool, waiting = SpawnTool(Child("ok", "gold")), SpawnTool(Child("running"))
    yield Offered(
        tool=tool, good={"task": "dig for gold"}, safety="idempotent", parts={"effects": Effects()},
        hangs=(waiting, {"task": "dig for gold", "wait": True}),
    )  # fmt: skip


class Kept(Transcripts):
    """What is kept of a chat, in memory."""

    def __init__(self) -> None:
        self._kept = TranscriptPage((encode(UserEntry(content="Ada likes tea", turn=1)),))

    async def read_back(self, session: str, before: str = "", *, limit: int = 50) -> TranscriptPage:
        return self._kept


class KeptAway(Kept):
    read_back = never


@contextlib.asynccontextmanager
async def search_history(_: Path) -> AsyncIterator[Offered]:
    good = {"words": "tea", "limit": 5}
    yield Offered(tool=SearchHistory(Kept()), good=good, safety="read_only", hangs=(SearchHistory(KeptAway()), good))


RESULTS: Final = '{"results": [{"url": "https://a.example/", "title": "A", "content": "about"}]}'


@contextlib.asynccontextmanager
async def web(name: str, _: Path) -> AsyncIterator[Offered]:
    asked = asyncio.Event()

    async def silent(_asked: Asked, _send: Send) -> None:
        asked.set()
        await never()

    async with web_server() as server, web_server() as silent_one:
        server.pages["/search"] = reply(RESULTS, "application/json")
        server.pages["/page"] = reply("<html><body><p>A page about tea, and nothing but tea.</p></body></html>")
        server.pages["/long"] = reply("tea \n" * (BIG // 5), "text/plain")
        silent_one.pages = {"/search": silent, "/page": silent}
        tool, waiting = (_web_tool(one, name) for one in (server, silent_one))
        fetch = name == "web_fetch"
        yield Offered(
            tool=tool, good={"url": server.url("/page")} if fetch else {"query": "tea"}, safety="read_only",
            hangs=(waiting, {"url": silent_one.url("/page")} if fetch else {"query": "tea"}),
            begun=asked.wait, over=lambda: silent_one.open == 0,
        )  # fmt: skip


def _web_tool(server: WebServer, name: str) -> Tool:
    settings = ToolsSettings(
        search_engine="searxng", search_url=server.url("/search"), web_allow=(f"127.0.0.1:{server.port}",)
    )
    [tool] = [one for one in build_web_tools(settings) if one.name == name]
    return tool


@contextlib.asynccontextmanager
async def exec_in(name: str, _: Path) -> AsyncIterator[Offered]:
    """In the named tier, or a skip that says what it needs."""
    async with contextlib.AsyncExitStack() as held:
        sandbox: Sandbox
        if name == "bubblewrap":
            sandbox = await tier(name)
            top = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
            top.chmod(0o711)
            root, access = top / "workspaces", Access()
            root.mkdir(0o755)
            root.chmod(0o711)  # a way for the user that commands are where the tests are root
        else:
            need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
            need("libseccomp2", found=library() is not None)
            runner = RunnerProcess(profile=True)
            held.callback(runner.close)
            sandbox = await runner.ready()
            root, access = runner.root, Access(runner.group)
        held.push_async_callback(sandbox.close)
        spaces = Workspaces(root, access=access)
        held.callback(spaces.close)
        tool = Exec(sandbox, spaces, limits=CommandLimits(wall_s=60, output_bytes=2 * BIG))
        at = spaces.workspace_of(SESSION).path / "begun"
        waits = "sleep 600 & setsid sleep 600 & echo >begun; sleep 600"
        yield Offered(
            tool=tool, good={"command": "echo hello"}, safety="unsafe", hangs=(tool, {"command": waits}),
            begun=partial(_there, at), big=(tool, {"command": f"head -c {BIG} /dev/zero | tr '\\0' x"}),
        )  # fmt: skip


async def _there(path: Path) -> None:
    while not os.path.exists(path):
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def mcp(folder: Path) -> AsyncIterator[Offered]:
    worker = Worker(peer=peer(folder))
    try:
        tools = {tool.name: tool for tool in await worker.servers.tools()}
        yield Offered(
            tool=tools["mcp_peer_add"], good={"a": 20, "b": 22}, safety="unsafe", ours=False,
            hangs=(tools["mcp_peer_hang"], {}), begun=partial(noted, folder, "hangs"),
            over=lambda: (folder / "cancelled").exists(), big=(tools["mcp_peer_huge"], {"bytes": BIG}),
        )  # fmt: skip
    finally:
        await worker.servers.close()
        assert supervisors() == []


@contextlib.asynccontextmanager
async def plugin(_: Path) -> AsyncIterator[Offered]:
    sys.path.insert(0, str(EXAMPLE))
    try:
        [tool] = plugin_tools(PluginSettings())
        yield Offered(tool=tool, good={"text": "strawberry", "letter": "r"}, safety="read_only")
    finally:
        sys.path.remove(str(EXAMPLE))


Make = Callable[[Path], contextlib.AbstractAsyncContextManager[Offered]]
OFFERED: Final[dict[str, Make]] = {
    **{name: partial(in_the_registry, name) for name in TOOLS},
    "message": message,
    "cron": cron,
    "spawn": spawn,
    "search_history": search_history,
    "web_search": partial(web, "web_search"),
    "web_fetch": partial(web, "web_fetch"),
    "exec, bubblewrap": partial(exec_in, "bubblewrap"),
    "exec, runner": partial(exec_in, "runner"),
    "a tool of an MCP server": mcp,
    "a tool of a plugin": plugin,
}
QUICK: Final = [name for name in OFFERED if not name.startswith("exec")]
"""Those that can be called some hundred times."""
