"""The MCP servers of a worker, and the tools they give its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import Context
from importlib import import_module
from typing import Final

from shared.log import logger
from shared.settings import McpServerSettings
from shared.tasks import cancel_all
from worker.agent.tools.tool import Tool, Toolbox
from worker.documents.untrusted import one_line
from worker.mcp.naming import TOOLS_OFFERED, tool_name
from worker.mcp.server import McpServer
from worker.mcp.tool import McpTool
from worker.mcp.wire import Connect

FIRST_LIST_S: Final = 10.0
"""How long a turn waits for servers that have not been heard of yet; then it goes on without their
tools."""
CLOSE_S: Final = 8.0
"""How long the servers have to end; then they are killed."""
REFUSALS_TOLD: Final = 200

log = logger("mcp-servers")


class McpServers:
    """All that are configured; none costs nothing, not even an import. `taken` are the names of
    other tools."""

    def __init__(
        self,
        settings: Mapping[str, McpServerSettings],
        *,
        taken: Collection[str] = (),
        door: Callable[[], Connect] | None = None,
        first_list_s: float = FIRST_LIST_S,
    ) -> None:
        self._taken = frozenset(taken)
        self._opened = door or _door
        self._first_list_s = first_list_s
        self._servers = tuple(
            McpServer(name, settings[name], door=self._door, changed=self._stale) for name in sorted(settings)
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._tools: tuple[Tool, ...] | None = None
        self._refused: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Connect in the background. Harmless to call again."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(one.run(), name=f"mcp {one.name}", context=Context())  # of no turn
                for one in self._servers
            ]

    async def tools(self) -> tuple[Tool, ...]:
        """Every tool, by server and name; the same tuple as long as no list has changed.

        The first time it waits, in bounds, until each server was reached or not.
        """
        self.start()
        late = [one for one in self._servers if not one.settled.is_set()]
        if late:
            waiting = [asyncio.create_task(one.settled.wait()) for one in late]
            try:
                await asyncio.wait(waiting, timeout=self._first_list_s)
            finally:
                await cancel_all(waiting)
            for one in late:
                one.settled.set()  # no other turn waits for it
        if self._tools is None:
            self._tools = tuple(self._built())
        return self._tools

    def details(self) -> dict[str, str]:
        """How each server is, in words for an operator: one short fact of a worker's presence
        each."""
        return {f"mcp.{one.name}": one.state for one in self._servers}

    async def close(self) -> None:
        """End all sessions and processes."""
        for task in self._tasks:
            task.cancel()  # once: a second one would break into the library's own ending of a process
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        await cancel_all(self._tasks)

    def _stale(self) -> None:
        self._tools = None

    def _built(self) -> Iterable[Tool]:
        used = set(self._taken)
        for server in self._servers:
            offered = 0
            for listed in server.listed:
                name = tool_name(server.name, listed.name)
                if name in used:
                    name = tool_name(server.name, listed.name, marked=True)
                try:
                    if name in used:
                        raise ValueError(f"its name {name!r} is that of another tool")
                    if offered == TOOLS_OFFERED:
                        raise ValueError(f"its server has more than {TOOLS_OFFERED} tools; choose some with `tools`")
                    tool = McpTool(name, server, listed)
                except ValueError as exc:
                    self._tell_refused(server.name, listed.name, str(exc))
                    continue
                used.add(name)
                offered += 1
                yield tool

    def _tell_refused(self, server: str, tool: str, why: str) -> None:
        """Once for each tool, and in bounds: a server may change its list all day."""
        if (server, tool) not in self._refused and len(self._refused) < REFUSALS_TOLD:
            self._refused.add((server, tool))
            log.warning("mcp tool refused", server=server, tool=one_line(tool, 64), why=why)

    async def _door(self) -> Connect:
        return await asyncio.to_thread(self._opened)  # the library takes most of a second to import


class Toolboxes:
    """The toolbox of the moment: `base` and the tools of servers. `make` builds one, only when a
    list has changed, so that a model is offered the same bytes from turn to turn."""

    def __init__(self, base: Sequence[Tool], servers: McpServers, make: Callable[[Iterable[Tool]], Toolbox]) -> None:
        self._base = tuple(base)
        self._servers = servers
        self._make = make
        self._found: tuple[Tool, ...] = ()
        self._box = make(self._base)

    def add(self, tool: Tool) -> None:
        """Offer one more tool of our own from the next turn on."""
        self._base = (*self._base, tool)
        self._box = self._make((*self._base, *self._found))

    async def now(self) -> Toolbox:
        """Waits, in bounds, for servers that were not heard of yet."""
        found = await self._servers.tools()
        if found is not self._found:
            self._found, self._box = found, self._make((*self._base, *found))
        return self._box


def _door() -> Connect:
    connect: Connect = import_module("worker.mcp.connection").connect
    return connect
