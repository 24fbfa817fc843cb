"""An MCP server, made with the official library and run as a process of its own: `peer.py NOTES [PORT]`.

NOTES is a folder: the server writes there what happens to it, one file an event, and reads `tools.json`, a list of
tools that it offers besides its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

NOTES = Path(sys.argv[1])
SUM = {
    "type": "object",
    "properties": {"a": {"type": "integer", "description": "one\u200b"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
OWN = [
    Tool(name="add", description="Adds\u200b two\x07 numbers.", input_schema=SUM),
    *(
        Tool(name=name, input_schema={"type": "object"})
        for name in ("hang", "die", "environ", "media", "refuse", "child", "grow", "shout", "huge")
    ),
    Tool(name="look", input_schema={"type": "object"}, annotations=ToolAnnotations(read_only_hint=True)),
    Tool(name="set", input_schema={"type": "object"}, annotations=ToolAnnotations(idempotent_hint=True)),
]


def note(event: str, text: str = "") -> None:
    """Leave a file, whole at once."""
    part = NOTES / f".{event}"
    part.write_text(text)
    part.rename(NOTES / event)


def more_tools() -> list[Tool]:
    file = NOTES / "tools.json"
    return [Tool.model_validate(one) for one in json.loads(file.read_text())] if file.exists() else []


async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[*more_tools(), *OWN])


async def call_tool(context: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=await answer(context, params.name, params.arguments or {}))


async def answer(context: Any, name: str, arguments: dict[str, Any]) -> list[Any]:
    match name:
        case "add":
            return [TextContent(text=str(arguments["a"] + arguments["b"]))]
        case "hang":
            note("hangs")
            try:
                await asyncio.Event().wait()
            finally:
                note("cancelled")
        case "die":
            os._exit(3)
        case "environ":
            return [TextContent(text=json.dumps(dict(os.environ)))]
        case "media":
            page = TextResourceContents(uri="file:///notes.md", mime_type="text/markdown", text="# the notes")
            return [
                TextContent(text="look:"),
                ImageContent(data="aGVsbG8h", mime_type="image/png"),
                EmbeddedResource(resource=page),
                ResourceLink(name="x", uri="https://example.org/x", mime_type="text/html"),
            ]
        case "child":
            child = subprocess.Popen(["sleep", "1000"])
            away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            note("children", f"{os.getpid()} {child.pid} {away.pid}")
            return [TextContent(text=f"{os.getpid()} {child.pid} {away.pid}")]
        case "grow":
            (NOTES / "tools.json").write_text(json.dumps([{"name": "zebra", "inputSchema": {"type": "object"}}]))
            await context.session.send_tool_list_changed()
            return [TextContent(text="grown")]
        case "shout":
            sys.stderr.write("the canary is sk-canary-of-the-server\n")
            sys.stderr.flush()
            return [TextContent(text="shouted")]
        case "huge":
            return [TextContent(text="x" * int(arguments["bytes"]))]
        case "refuse":
            pass
        case _:
            return [TextContent(text=f"{name} ran")]
    raise ValueError(f"never {name} with {arguments}")


server: Any = Server("peer", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        await server.run(read, write, options)


def main() -> None:
    note("started", str(os.getpid()))
    if len(sys.argv) == 2:
        asyncio.run(over_stdio())
    else:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")


if __name__ == "__main__":
    main()
