"""The MCP servers of a worker, and the tools that they offer to its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import Context
from typing import Final

from shared.log import logger
from shared.settings import McpServerSettings
from shared.tasks import cancel_all, event_within
from worker.agent.tools.tool import Tool, Toolbox
from worker.documents.untrusted import one_line
from worker.mcp.server import McpServer
from worker.mcp.tool import McpTool
from worker.mcp.wire import TOOLS_OFFERED, tool_name

FIRST_LIST_S: Final = 10.0
"""Wait of a turn for servers that still connect; then it goes on without their tools."""
CLOSE_S: Final = 8.0  # time that the servers have to end; then they are killed
REFUSALS_LOGGED: Final = 200

log = logger("mcp-servers")


class McpServers:
    """All configured servers; without any, nothing is imported. `reserved_names` are taken."""

    def __init__(
        self,
        settings: Mapping[str, McpServerSettings],
        *,
        reserved_names: Collection[str] = (),
        first_list_s: float = FIRST_LIST_S,
    ) -> None:
        self._reserved_names = frozenset(reserved_names)
        self._first_list_s = first_list_s
        self._servers = tuple(McpServer(name, one, self._discard_tools) for name, one in sorted(settings.items()))
        self._tasks: list[asyncio.Task[None]] = []
        self._tools: tuple[Tool, ...] | None = None
        self._refused: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Connect in the background. Calling it again does nothing."""
        if not self._tasks:
            # An empty context: these tasks outlive the turn that starts them and its trace.
            self._tasks = [
                asyncio.create_task(one.run(), name=f"mcp {one.name}", context=Context()) for one in self._servers
            ]

    async def tools(self) -> tuple[Tool, ...]:
        """Return every tool, sorted by server and name: the same tuple until a list changes. The
        first call waits until each server was tried, for a limited time."""
        self.start()
        late = [one for one in self._servers if not one.first_try_done.is_set()]
        if late:
            waits = (event_within(one.first_try_done, self._first_list_s) for one in late)
            await asyncio.gather(*waits)
            for one in late:
                one.first_try_done.set()  # later turns do not wait for it
        if self._tools is None:
            self._tools = tuple(self._build_tools())
        return self._tools

    def details(self) -> dict[str, str]:
        """Return the state of each server, for the worker's presence record."""
        return {f"mcp.{one.name}": one.state for one in self._servers}

    async def close(self) -> None:
        """End all sessions and processes."""
        for task in self._tasks:
            task.cancel()  # once: a second cancel would interrupt the library while it ends a process
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        await cancel_all(self._tasks)

    def _discard_tools(self) -> None:
        self._tools = None

    def _build_tools(self) -> Iterable[Tool]:
        used = set(self._reserved_names)
        for server in self._servers:
            offered = 0
            for listed in server.listed:
                name = tool_name(server.name, listed.name)
                if name in used:
                    name = tool_name(server.name, listed.name, marked=True)
                try:
                    if name in used:
                        raise ValueError(f"its name {name!r} belongs to another tool")
                    if offered == TOOLS_OFFERED:
                        raise ValueError(f"its server has more than {TOOLS_OFFERED} tools; choose some with `tools`")
                    tool = McpTool(name, server, listed)
                except ValueError as exc:
                    self._log_refused(server.name, listed.name, str(exc))
                    continue
                used.add(name)
                offered += 1
                yield tool

    def _log_refused(self, server: str, tool: str, why: str) -> None:
        """Log each tool once, and at most REFUSALS_LOGGED: a server may change its list all day."""
        if (server, tool) not in self._refused and len(self._refused) < REFUSALS_LOGGED:
            self._refused.add((server, tool))
            log.warning("mcp tool refused", server=server, tool=one_line(tool, 64), why=why)


class Toolboxes:
    """The current toolbox: `base` and the tools of servers. `make` builds a new one only when a
    list has changed, so that the provider's prompt cache keeps matching."""

    def __init__(self, base: Sequence[Tool], servers: McpServers, make: Callable[[Iterable[Tool]], Toolbox]) -> None:
        self._base = tuple(base)
        self._servers = servers
        self._make = make
        self._found: tuple[Tool, ...] = ()
        self._box = make(self._base)

    def add_tool(self, tool: Tool) -> None:
        """Add one of our own tools from the next turn on."""
        self._base = (*self._base, tool)
        self._box = self._make((*self._base, *self._found))

    async def current(self) -> Toolbox:
        """Return the toolbox for a turn. Waits a limited time for connecting servers."""
        found = await self._servers.tools()
        if found is not self._found:
            self._found, self._box = found, self._make((*self._base, *found))
        return self._box
