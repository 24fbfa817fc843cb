"""A tool of an MCP server, as the agent sees it."""

from __future__ import annotations

from typing import Any

from worker.agent.tools.json_parameters import JsonParameters
from worker.agent.tools.tool import Safety, ToolContext
from worker.mcp.naming import description, fitting_schema
from worker.mcp.results import told
from worker.mcp.server import McpServer
from worker.mcp.wire import Listed


class McpTool:
    """Calls what the server lists. Raises ValueError for a tool that no model could be offered."""

    def __init__(self, name: str, server: McpServer, listed: Listed) -> None:
        self.name = name
        self.description = description(server.name, listed)
        self.parameters = JsonParameters(fitting_schema(listed))
        self.safety = _safety(server, listed)
        self.timeout_s = server.settings.timeout_s
        self._server = server
        self._listed = listed

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        result = await self._server.call(self._listed.name, arguments)
        return await told(self._server.name, result, context)


def _safety(server: McpServer, listed: Listed) -> Safety:
    """What the operator says; what the server says only for an operator who trusts it."""
    settings = server.settings
    if listed.name in settings.tool_safety:
        return settings.tool_safety[listed.name]
    if settings.trust_hints and listed.read_only:
        return "read_only"
    if settings.trust_hints and listed.idempotent:
        return "idempotent"
    return settings.safety
