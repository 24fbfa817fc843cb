"""A web server on loopback that is as bad as a test wants it: raw bytes over real connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec

from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually

_READ_BYTES = 64 * 1024


class Asked(msgspec.Struct, frozen=True):
    """A request as it came. `target` has the query, header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Send = Callable[[bytes], Awaitable[None]]
Handler = Callable[[Asked, Send], Awaitable[None]]


def reply(
    body: bytes | str = b"", type: str = "text/html; charset=utf-8", *, status: int = 200, **headers: str
) -> Handler:
    """A whole answer. An underscore in the name of a header stands for `-`; an empty type leaves it out."""
    data = body.encode() if isinstance(body, str) else body

    async def send_it(_asked: Asked, send: Send) -> None:
        await send(head(status, {"Content-Type": type} if type else {}, size=len(data), **headers) + data)

    return send_it


def redirect(target: str, status: int = 302) -> Handler:
    """An answer that leads elsewhere."""
    return reply(status=status, Location=target)


def head(status: int, fields: Mapping[str, str], *, size: int | None = None, **headers: str) -> bytes:
    """The head of an answer; without a size it ends with the connection."""
    lines = {**fields, **{name.replace("_", "-"): value for name, value in headers.items()}, "Connection": "close"}
    if size is not None:
        lines["Content-Length"] = str(size)
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Status\r\n{text}\r\n".encode("utf-8", "surrogateescape")


class WebServer:
    """Answers each path with its handler, and anything else with 404."""

    def __init__(self) -> None:
        self.pages: dict[str, Handler] = {}
        self.asked: list[Asked] = []
        self.open = 0
        """Connections that are there now."""
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """Where a path is, under any name that leads here."""
        return f"http://{host}:{self.port}{path}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self._writers.add(writer)
        working: asyncio.Task[None] | None = None
        try:
            asked = await _asked(reader)
            self.asked.append(asked)
            handler = self.pages.get(asked.target.partition("?")[0], reply("no such page", status=404))

            async def send(data: bytes) -> None:
                writer.write(data)
                await writer.drain()

            async def work() -> None:
                await handler(asked, send)
                writer.write_eof()

            working = asyncio.ensure_future(work())
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if working is not None:
                working.cancel()
                # OSError: a client that hung up before the end (ENOTCONN) is not a ConnectionError.
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await working
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._writers.discard(writer)
            self.open -= 1

    async def hang_up(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()
        await eventually(lambda: self.open == 0)


async def _asked(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:]) if name}
    return Asked(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@contextlib.asynccontextmanager
async def web_server() -> AsyncIterator[WebServer]:
    """The server in the running loop."""
    web = WebServer()
    async with stream_server(web.handle, limit=_READ_BYTES) as web.port:
        try:
            yield web
        finally:
            await web.hang_up()
