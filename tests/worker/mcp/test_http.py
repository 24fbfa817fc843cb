"""MCP servers that are reached over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shared.settings import McpServerSettings, Secret
from tests.gateway.harness import free_port
from tests.helpers.wait import eventually
from tests.worker.mcp.peers import LONG_S, HttpPeer, adds, noted, working
from worker.mcp.wire import MESSAGE_BYTES


@pytest.fixture
def http_peer(tmp_path: Path) -> Iterator[HttpPeer]:
    peer = HttpPeer(tmp_path, free_port())
    yield peer
    peer.kill()


class Odd:
    """A web server that is no good MCP server: it answers every request with `answer`. `asked` are the headers."""

    def __init__(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        asked = self.asked = list[dict[str, str]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append({name.lower(): value for name, value in self.headers.items()})
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(status)
                for name, value in {"content_length": str(len(body)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_DELETE = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Odd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


async def why(server: McpServerSettings) -> str:
    """Return the reason why a server is unavailable."""
    async with working(peer=server) as worker:
        assert await worker.names() == []

        def state() -> str:
            state = worker.servers.details()["mcp.peer"]
            return state if "connecting" not in state else ""

        return await eventually(state, within_s=LONG_S)


async def test_the_tools_of_a_server_are_listed_and_called(http_peer: HttpPeer) -> None:
    """It works as over the streams of a process."""
    await http_peer.start()
    async with working(peer=McpServerSettings(url=http_peer.url)) as worker:
        assert "mcp_peer_add" in await worker.names()
        outcome = await worker.call("mcp_peer_add", a=20, b=22)
        assert outcome.ok
        assert "\n42\n" in outcome.content


async def test_a_server_that_was_started_anew_is_there_for_the_next_call(http_peer: HttpPeer) -> None:
    """It knows nothing of the old session, so the call is made again in a new one."""
    await http_peer.start()
    async with working(peer=McpServerSettings(url=http_peer.url)) as worker:
        box = await worker.boxes.current()
        http_peer.kill()
        await http_peer.start()
        for _ in range(2):
            outcome = await worker.call("mcp_peer_add", a=1, b=2)
            assert outcome.ok, outcome.content
        assert await worker.boxes.current() is box


async def test_a_server_that_is_away_is_a_text_for_the_model(http_peer: HttpPeer) -> None:
    """It says which server; the turn goes on. When it is there again, a call reaches it."""
    await http_peer.start()
    async with working(peer=McpServerSettings(url=http_peer.url)) as worker:
        await worker.names()
        http_peer.kill()
        outcome = await worker.call("mcp_peer_add", a=1, b=2)
        assert outcome.outcome == "failed"
        assert "the MCP server 'peer'" in outcome.content
        await http_peer.start()
        await worker.up()
        assert (await worker.call("mcp_peer_add", a=1, b=2)).ok


async def test_a_cancelled_call_is_cancelled_in_the_server(http_peer: HttpPeer, tmp_path: Path) -> None:
    """And a call that is too slow likewise."""
    await http_peer.start()
    async with working(peer=McpServerSettings(url=http_peer.url, timeout_s=3.0)) as worker:
        running = asyncio.create_task(worker.call("mcp_peer_hang"))
        await noted(tmp_path, "hangs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await noted(tmp_path, "cancelled")
        (tmp_path / "cancelled").unlink()
        assert (await worker.call("mcp_peer_hang")).outcome == "timeout"
        await noted(tmp_path, "cancelled")
        await eventually(partial(adds, worker), within_s=LONG_S)  # a stall may cost a try its three seconds


async def test_a_list_that_changed_is_offered_from_the_next_turn_on(http_peer: HttpPeer) -> None:
    """The server says so on its stream of events."""
    await http_peer.start()
    async with working(peer=McpServerSettings(url=http_peer.url)) as worker:
        await worker.names()

        async def grown() -> bool:
            assert (await worker.call("mcp_peer_grow")).ok
            return "mcp_peer_zebra" in await worker.names()

        await eventually(grown, within_s=LONG_S, every_s=0.2)


async def test_headers_go_to_the_server_and_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect to another host would carry the operator's secret there: it is not followed. Nor does a proxy of the
    environment see it."""
    with Odd() as other, Odd(307, location=other.url) as first:
        monkeypatch.setenv("HTTP_PROXY", other.url)
        secret = Secret("Bearer sk-canary-of-the-operator")
        reason = await why(McpServerSettings(url=first.url, headers={"Authorization": secret}))
        assert first.asked[0]["authorization"] == secret.reveal()
        assert other.asked == []
    assert "not followed" in reason
    assert "canary" not in reason


async def test_an_address_that_is_not_a_server_is_reported_to_the_operator() -> None:
    """In the worker's presence, for `shoal doctor`."""
    with Odd(200, b"<html>", content_type="text/html") as odd:
        assert "content type" in await why(McpServerSettings(url=odd.url))
    assert "ConnectError" in await why(McpServerSettings(url=odd.url))


async def test_an_answer_that_is_too_big_is_given_up() -> None:
    """Before it fills the memory of all other turns."""
    body = b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"x" * (MESSAGE_BYTES + 1) + b'"}'
    with Odd(200, body, content_type="application/json") as odd:
        assert f"more than {MESSAGE_BYTES:,} bytes" in await why(McpServerSettings(url=odd.url))
    with Odd(200, b"x", content_type="application/json", content_encoding="gzip") as odd:
        assert "packed" in await why(McpServerSettings(url=odd.url))
