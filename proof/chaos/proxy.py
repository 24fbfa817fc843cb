"""A TCP proxy before the server that can lose answers, stand still, and be slow."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast
from urllib.parse import urlsplit, urlunsplit

from shared.tasks import cancel_all
from tests.helpers.stream_server import stream_server


class Proxy:
    """Passes bytes on to `upstream` (a redis:// address). One fault at a time, ended by whoever began it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._serving = contextlib.AsyncExitStack()
        self._port = 0
        self._passing = asyncio.Event()
        self._passing.set()
        self._links: set[asyncio.Task[None]] = set()
        self.losing_answers = False
        self.delay_s = 0.0

    @property
    def url(self) -> str:
        """The address of the server, through the proxy."""
        password = f":{self._upstream.password}@" if self._upstream.password else ""
        return urlunsplit(self._upstream._replace(netloc=f"{password}127.0.0.1:{self._port}"))

    async def start(self) -> None:
        """Listen on a free port."""
        self._port = await self._serving.enter_async_context(stream_server(self._connected))

    async def stop(self) -> None:
        """Cut everything."""
        await self._serving.aclose()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    def lead_to(self, upstream: str) -> None:
        """Pass new connections to another server; those that exist stay with theirs."""
        self._upstream = urlsplit(upstream)

    def cut(self) -> None:
        """End every connection, with what is on its way."""
        for link in self._links:
            link.cancel()

    async def stand_still(self, seconds: float) -> None:
        """Half-open: connections stay, connecting works, no byte passes."""
        self._passing.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._passing.set()

    async def lose_answers(self, seconds: float) -> None:
        """Requests get through, their answers do not: each connection that answers is cut instead."""
        self.losing_answers = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.losing_answers = False

    async def be_slow(self, seconds: float, delay_s: float) -> None:
        """Every answer takes `delay_s` longer."""
        self.delay_s = delay_s
        try:
            await asyncio.sleep(seconds)
        finally:
            self.delay_s = 0.0

    async def passing(self) -> None:
        """Wait until bytes may pass."""
        await self._passing.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._links.add(task)
        try:
            with contextlib.suppress(OSError):
                upstream = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
                await _Link(self, reader, writer).run(*upstream)
        finally:
            writer.close()  # also when the server behind is away
            self._links.discard(task)


class _Link:
    """One client's connection and the one behind it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = reader, writer

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pumps = [
            asyncio.create_task(self._requests(writer)),
            asyncio.create_task(self._answers(reader)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writer.close()  # first: whoever stops the proxy may cancel this task while it waits
            await cancel_all(pumps)

    async def _requests(self, upstream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await self._client[0].read(65536):
                await self._proxy.passing()
                upstream.write(data)
                await upstream.drain()

    async def _answers(self, upstream: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await upstream.read(65536):
                if self._proxy.losing_answers:
                    return
                await self._proxy.passing()
                if self._proxy.delay_s:
                    await asyncio.sleep(self._proxy.delay_s)
                self._client[1].write(data)
                await self._client[1].drain()
