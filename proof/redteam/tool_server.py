"""A tool server that speaks MCP over HTTP, as much of it as a client needs, with the standard library alone: the Python
of AgentDojo's own environment runs it, too.

`POST /mcp/<server>` is the protocol, `POST /admin/<question>` what the program that plays the attack asks about it,
`POST /voice/…` writes a recording down.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Offer:
    """What is behind the server: lists the tools of a server, runs one, answers a question of the program."""

    def tools(self, server: str) -> list[dict[str, Any]]:
        """Return name, description and inputSchema of each."""
        raise NotImplementedError

    def call(self, server: str, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the text of the result, and whether it failed."""
        raise NotImplementedError

    def ask(self, question: str, body: dict[str, Any]) -> Any:
        """Answer the program."""
        raise NotImplementedError

    def page(self, path: str) -> tuple[str, str]:
        """Return a page's media type and text."""
        raise NotImplementedError

    def received(self) -> str:
        """Return what is said in any recording."""
        raise NotImplementedError


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    offer: Offer

    def do_POST(self) -> None:
        sent = self._body()
        _, kind, name = self.path.split("/", 2)
        if kind == "voice":
            self._send(200, json.dumps({"text": self.offer.received()}).encode())
            return
        body = json.loads(sent or b"{}")
        if kind == "admin":
            self._send(200, json.dumps(self.offer.ask(name, body)).encode())
        elif "id" not in body:
            self._send(202)  # a notification
        else:
            reply = {"jsonrpc": "2.0", "id": body["id"], **self._reply(name, body)}
            self._send(200, json.dumps(reply).encode())

    def do_GET(self) -> None:
        if self.path.startswith("/mcp/"):
            self._send(405)  # nothing is ever said unasked
        else:
            kind, text = self.offer.page(self.path)
            self._send(200, text.encode(), kind)

    def do_DELETE(self) -> None:
        self._send(405)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while "chunked" in self.headers.get("Transfer-Encoding", ""):
            size = int(self.rfile.readline(), 16)
            parts.append(self.rfile.read(size + 2)[:size])
            if not size:
                break
        return b"".join(parts)

    def _reply(self, server: str, body: dict[str, Any]) -> dict[str, Any]:
        params = body.get("params") or {}
        match body["method"]:
            case "initialize":
                version = params.get("protocolVersion", "2025-06-18")
                facts = {"serverInfo": {"name": server, "version": "1"}, "capabilities": {"tools": {}}}
                return {"result": {"protocolVersion": version, **facts}}
            case "tools/list":
                return {"result": {"tools": self.offer.tools(server)}}
            case "tools/call":
                text, failed = self.offer.call(server, params["name"], params.get("arguments") or {})
                return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}
            case "ping":
                return {"result": {}}
        return {"error": {"code": -32601, "message": "no such method"}}

    def _send(self, status: int, data: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class ToolServer(ThreadingHTTPServer):
    """Dozens of turns connect at once."""

    daemon_threads = True
    request_queue_size = 256


def server_of(offer: Offer) -> ThreadingHTTPServer:
    """Make a server on a free port of loopback."""
    return ToolServer(("127.0.0.1", 0), type("OfferHandler", (Handler,), {"offer": offer}))


def serve_until_eof(offer: Offer) -> None:
    """Print the port, and serve until standard input ends."""
    server = server_of(offer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdout = sys.stderr  # what is offered may print, and nobody reads more than the first line
    sys.stdin.read()
    server.shutdown()
