"""A tool of an MCP server as the agent sees it, and how its results are rendered for the model."""

from __future__ import annotations

import re
from typing import Any, Final

from shared.errors import ToolFailed
from worker.agent.tools.schema import JsonParameters
from worker.agent.tools.tool import Safety, ToolContext
from worker.documents.untrusted import fence_text, one_line, strip_hidden
from worker.mcp.server import McpServer
from worker.mcp.wire import CallResult, ListedTool, ResultPart, describe_tool, provider_schema

PARTS: Final = 100
FAILURE_CHARS: Final = 2000
_EXTENSION: Final = {"application/json": "json", "text/markdown": "md", "text/csv": "csv", "text/html": "html"}


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
    """Render a result for the model: texts as they are, one line for each other part, all fenced as
    text of a stranger. A text resource becomes a file of the turn, fenced as well. Raises
    ToolFailed for a result that is a failure."""
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
