"""The end of a server: at once when nothing is under way, else after what is, for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.process import listening
from shared.process.listening import Server, listener
from tests.helpers.wait import PATIENCE_S, eventually

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


class Answering:
    """A server that runs here, whose answers wait for `go`."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self._bound = listener("127.0.0.1", 0, section="web")
        self.server = Server(self._answer, name="web", interface="asgi3", ws="none")
        self.serving = asyncio.create_task(self.server.serve(sockets=[self._bound]))

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.asked.set()
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def ask(self) -> asyncio.StreamReader:
        """Send a request over a connection that stays open, and wait until it has come."""
        reader, writer = await asyncio.open_connection(*self._bound.getsockname())
        self._writer = writer
        writer.write(GET)
        await self.asked.wait()
        return reader

    async def end(self) -> None:
        """Stop it; return when it has ended."""
        self.server.stop()
        async with asyncio.timeout(PATIENCE_S):
            await self.serving

    async def close(self) -> None:
        await self.end()
        self._writer.close()


@pytest.fixture
async def answering(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Answering]:
    monkeypatch.setattr(listening, "TICK_S", 600.0)  # who waits for the next one does not end in this test
    made = Answering()
    await eventually(lambda: made.server.started)
    yield made
    await made.close()


async def test_a_server_with_nothing_under_way_ends_at_once(answering: Answering) -> None:
    """An open connection that waits for its next request is nothing."""
    answering.go.set()
    reader = await answering.ask()
    await reader.readuntil(b"ok")
    await answering.end()
    assert await reader.read() == b""


async def test_a_request_under_way_is_answered_before_a_server_ends(answering: Answering) -> None:
    """Its client never notices."""
    reader = await answering.ask()
    answering.server.stop()
    await eventually(lambda: answering.server.server_state.connections and not answering.serving.done())
    answering.go.set()
    assert (await reader.read()).endswith(b"ok")
    await answering.end()


async def test_a_request_that_does_not_end_is_ended_with_the_server(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment."""
    monkeypatch.setattr(listening, "GRACE_S", 0.05)
    await answering.ask()
    [task] = answering.server.server_state.tasks
    await answering.end()
    await eventually(task.done)
