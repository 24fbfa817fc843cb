"""An MCP server that is a process of its own: `peer.py NOTES`, or made with the official library, which takes most of a
second to import, `peer.py NOTES library` over stdio and `peer.py NOTES PORT` over HTTP.

NOTES is a folder: the server writes there what happens to it, one file an event, and reads `tools.json`, a list of
tools that it offers besides its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Body = dict[str, Any]

NOTES = Path(sys.argv[1])
SUM: Body = {
    "type": "object",
    "properties": {"a": {"type": "integer", "description": "one\u200b"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
OWN: list[Body] = [
    {"name": "add", "description": "Adds\u200b two\x07 numbers.", "inputSchema": SUM},
    *(
        {"name": name, "inputSchema": {"type": "object"}}
        for name in ("hang", "die", "environ", "media", "refuse", "child", "grow", "shout", "huge")
    ),
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "set", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
]
MEDIA: list[Body] = [
    {"type": "text", "text": "look:"},
    {"type": "image", "data": "aGVsbG8h", "mimeType": "image/png"},
    {
        "type": "resource",
        "resource": {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# the notes"},
    },
    {"type": "resource_link", "name": "x", "uri": "https://example.org/x", "mimeType": "text/html"},
]
HELLO: Body = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "peer", "version": "1"},
}
CHANGED = "notifications/tools/list_changed"


def note(event: str, text: str = "") -> None:
    """Leave a file, whole at once."""
    part = NOTES / f".{event}"
    part.write_text(text)
    part.rename(NOTES / event)


def tools() -> list[Body]:
    file = NOTES / "tools.json"
    return [*(json.loads(file.read_text()) if file.exists() else []), *OWN]


def answer(name: str, arguments: Body) -> list[Body]:
    """Return the content of a result; `hang` and `grow` are the server's."""
    match name:
        case "media":
            return MEDIA
        case "die":
            os._exit(3)
        case "refuse":
            raise ValueError(f"never {name} with {arguments}")
    return [{"type": "text", "text": words(name, arguments)}]


def words(name: str, arguments: Body) -> str:
    match name:
        case "add":
            return str(arguments["a"] + arguments["b"])
        case "environ":
            return json.dumps(dict(os.environ))
        case "child":
            return start_children()
        case "grow":
            (NOTES / "tools.json").write_text(json.dumps([{"name": "zebra", "inputSchema": {"type": "object"}}]))
            return "grown"
        case "shout":
            sys.stderr.write("the canary is sk-canary-of-the-server\n")
            sys.stderr.flush()
            return "shouted"
        case "huge":
            return "x" * int(arguments["bytes"])
    return f"{name} ran"


def start_children() -> str:
    """Start a child, and one that leaves the process group; return their ids after our own."""
    import subprocess

    child = subprocess.Popen(["sleep", "1000"])
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pids = f"{os.getpid()} {child.pid} {away.pid}"
    note("children", pids)
    return pids


class Plain:
    """A server over stdio that needs the standard library alone, and starts in a fiftieth of a second."""

    def __init__(self) -> None:
        self._hanging: set[int | str] = set()

    def serve(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            if request["method"] == "notifications/cancelled":
                self._cancel(request["params"]["requestId"])
            elif "id" in request:
                self._answer(request)
        if self._hanging:
            note("cancelled")

    def _answer(self, request: Body) -> None:
        try:
            result = self._result(request)
        except (ValueError, KeyError) as error:
            self._send({"id": request["id"], "error": {"code": -32603, "message": str(error)}})
            return
        if result is not None:
            self._send({"id": request["id"], "result": result})

    def _result(self, request: Body) -> Body | None:
        match request["method"]:
            case "initialize":
                return HELLO
            case "tools/list":
                return {"tools": tools()}
            case "tools/call":
                return self._call(request["id"], request["params"])
        raise ValueError(f"no method {request['method']!r}")

    def _call(self, id: int | str, params: Body) -> Body | None:
        name = params["name"]
        if name == "hang":
            self._hanging.add(id)
            note("hangs")
            return None
        content = answer(name, params.get("arguments") or {})
        if name == "grow":
            self._send({"method": CHANGED})
        return {"content": content}

    def _cancel(self, id: int | str) -> None:
        if id in self._hanging:
            self._hanging.remove(id)
            note("cancelled")

    def _send(self, message: Body) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def by_library(port: int | None) -> None:
    """Serve the same with the official library, over stdio or HTTP."""
    import asyncio

    from mcp.server.lowlevel import NotificationOptions, Server
    from mcp.server.stdio import stdio_server
    from mcp_types import CallToolResult, ListToolsResult

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult.model_validate({"tools": tools()})

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        if params.name == "hang":
            note("hangs")
            try:
                await asyncio.Event().wait()
            finally:
                note("cancelled")
        content = answer(params.name, params.arguments or {})
        if params.name == "grow":
            await context.session.send_tool_list_changed()
        return CallToolResult.model_validate({"content": content})

    server: Any = Server("peer", on_list_tools=list_tools, on_call_tool=call_tool)

    async def over_stdio() -> None:
        async with stdio_server() as (read, write):
            options = server.create_initialization_options(NotificationOptions(tools_changed=True))
            await server.run(read, write, options)

    if port is None:
        asyncio.run(over_stdio())
    else:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")


def main() -> None:
    note("started", str(os.getpid()))
    match sys.argv[2:]:
        case []:
            Plain().serve()
        case ["library"]:
            by_library(None)
        case [port]:
            by_library(int(port))


if __name__ == "__main__":
    main()
