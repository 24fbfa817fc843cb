"""The MCP servers of a worker, the tools that they offer to its agent, and their results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import Context
from typing import Any, Final

from shared.errors import ToolFailed
from shared.log import logger
from shared.messages.untrusted import fence_text, one_line, strip_hidden
from shared.settings import McpServerSettings
from shared.store.fleet.presence import TOOLS_LEFT_OUT
from shared.tasks import cancel_all, event_within
from worker.agent.tools.json_parameters import JsonParameters
from worker.agent.tools.tool import Safety, Tool, ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.mcp.schema_repair import is_repaired
from worker.mcp.server import McpServer
from worker.mcp.wire import TOOLS_OFFERED, CallResult, ListedTool, ResultPart, describe_tool, provider_schema, tool_name

FIRST_LIST_S: Final = 10.0
"""Wait of a turn for servers that still connect; then it goes on without their tools."""
CLOSE_S: Final = 8.0  # time that the servers have to end; then they are killed
PARTS: Final = 100
FAILURE_CHARS: Final = 2000
_EXTENSION: Final = {"application/json": "json", "text/markdown": "md", "text/csv": "csv", "text/html": "html"}
REFUSALS_LOGGED: Final = 200
REASONS_SHOWN: Final = 8

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
        self._left_out: list[str] = []  # each tool that is not offered, with the reason
        self._refused: set[tuple[str, str]] = set()
        self._repaired: set[tuple[str, str]] = set()

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
        return self._current_tools()

    def _current_tools(self) -> tuple[Tool, ...]:
        if self._tools is None:
            self._left_out = []
            self._tools = tuple(self._build_tools())
        return self._tools

    def details(self) -> dict[str, str]:
        """Return the state of each server, for the worker's presence record."""
        self._current_tools()
        states = {f"mcp.{one.name}": one.state for one in self._servers}
        return states | ({TOOLS_LEFT_OUT: _join_reasons(self._left_out)} if self._left_out else {})

    async def close(self) -> None:
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
            repaired: list[str] = []
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
                    self._leave_out(server.name, listed.name, str(exc))
                    continue
                used.add(name)
                offered += 1
                if is_repaired(listed.schema, tool.parameters.schema):
                    repaired.append(listed.name)
                yield tool
            self._log_repaired(server.name, repaired)

    def _log_repaired(self, server: str, tools: Iterable[str]) -> None:
        new = [tool for tool in tools if (server, tool) not in self._repaired]
        if new and len(self._repaired) < REFUSALS_LOGGED:
            self._repaired |= {(server, tool) for tool in new}
            names = [one_line(tool, 64) for tool in new]
            log.info("mcp tool schemas repaired", server=server, tools=names)

    def _leave_out(self, server: str, tool: str, why: str) -> None:
        """Note why a tool is left out, for operators. Log each tool once, and at most
        REFUSALS_LOGGED: a server may change its list all day."""
        # A name may be Markdown, and `/status` shows it in chats.
        shown = re.sub(r"[^\w .()/-]", "_", one_line(tool, 64))
        self._left_out.append(f"{shown!r} of the MCP server {server!r}: {why}")
        if (server, tool) not in self._refused and len(self._refused) < REFUSALS_LOGGED:
            self._refused.add((server, tool))
            log.warning("mcp tool refused", server=server, tool=one_line(tool, 64), why=why)


def _join_reasons(reasons: Sequence[str]) -> str:
    more = len(reasons) - REASONS_SHOWN
    shown = [one if len(one) <= 300 else f"{one[:299]}…" for one in reasons[:REASONS_SHOWN]]
    return "; ".join([*shown, *([f"{more} more, which the worker's log names"] if more > 0 else [])])


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


class McpTool:
    """A tool that calls its server. Raises ValueError for one that no model can be offered."""

    def __init__(self, name: str, server: McpServer, listed: ListedTool) -> None:
        self.name = name
        self.description = describe_tool(server.name, listed)
        self.parameters = JsonParameters(provider_schema(listed))
        self.safety = _tool_safety(server, listed)
        self.timeout_s = server.settings.timeout_s
        self._server = server
        self._listed = listed

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        result = await self._server.call(self._listed.name, arguments)
        return await render_result(self._server.name, result, context)


def _tool_safety(server: McpServer, listed: ListedTool) -> Safety:
    """Return the operator's choice; hints of the server count only if it is trusted."""
    settings = server.settings
    if listed.name in settings.tool_safety:
        return settings.tool_safety[listed.name]
    if settings.trust_hints and listed.read_only:
        return "read_only"
    if settings.trust_hints and listed.idempotent:
        return "idempotent"
    return settings.safety


async def render_result(server: str, result: CallResult, context: ToolContext) -> str:
    """Render a result for the model, fenced as text of a stranger: texts as they are, one line for
    any other part; a text resource becomes a fenced file. Raises ToolFailed for a failure."""
    if result.failed:
        texts = "\n".join(strip_hidden(part.text) for part in result.parts[:PARTS] if part.text)
        raise ToolFailed(_fence(server, texts[:FAILURE_CHARS] or "it failed and does not say why"))
    lines = [
        await _render_part(server, part, position, context)
        for position, part in enumerate(result.parts[:PARTS], start=1)
    ]
    if len(result.parts) > PARTS:
        lines.append(f"[{len(result.parts) - PARTS} more parts are left out]")
    return _fence(server, "\n".join(lines) or "(nothing)")


async def _render_part(server: str, part: ResultPart, position: int, context: ToolContext) -> str:
    if part.kind == "text":
        return strip_hidden(part.text or "")
    size = f"{part.size_bytes:,} bytes" if part.size_bytes else ""
    about = ", ".join(filter(None, [one_line(part.name, 200), one_line(part.media_type, 100), size]))
    place = "not shown here"
    if part.text is not None:
        call = re.sub(r"[^A-Za-z0-9_-]", "_", context.call_id)[:64]
        path = f"results/{context.turn}-{call}-{position}.{_EXTENSION.get(part.media_type, 'txt')}"
        try:
            # The file is fenced too: a later turn may read it, and cannot know who wrote it.
            await context.files.replace(path, _fence(server, strip_hidden(part.text)), was=None)
            place = f"it is in the file {path!r}, marked alike"
        except ToolFailed:
            place = "it could not be kept"
    return f"[{part.kind}: {about or 'nothing is known of it'}; {place}]"


def _fence(server: str, text: str) -> str:
    return fence_text(text, tag="mcp", intro=f"What the MCP server {server!r} answered")
