"""A server that answers every request with the bytes a test gives it, in the pieces a test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from tests.helpers.stream_server import stream_server

SSE: Final = "text/event-stream"


class ByteServer:
    """What is answered next. `requests` holds the head and the body of everything that was asked. Each request
    calls the first of `coming`, which may say another answer."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.connections = 0
        self.pieces: Sequence[bytes] = ()
        self.coming: list[Callable[[], None]] = []
        self.head = b""
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(
        self,
        *pieces: bytes,
        status: int = 200,
        content_type: str = SSE,
        headers: dict[str, str] | None = None,
        chunked: bool = True,
        whole: bool = True,
    ) -> None:
        """Answer with these pieces from now on, each sent on its own.

        Without `chunked` the end of the connection is the end of the answer; without `whole` it ends too early.
        """
        all_headers = {"Content-Type": content_type} | (headers or {})
        all_headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Connection": "close"}
        head = f"HTTP/1.1 {status} Scripted\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in all_headers.items()
        )
        self.head = head.encode("latin-1") + b"\r\n"
        self.pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece for piece in pieces if piece]
        self._end = b"0\r\n\r\n" if chunked and whole else b""
        self._stays = chunked and whole

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(line for line in head.lower().splitlines() if line.startswith("content-length:"))
        self.requests.append((head, await reader.readexactly(int(length.partition(":")[2]))))
        if self.coming:
            self.coming.pop(0)()
        writer.write(self.head)
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # one write, one read at the other end, as far as the loop allows
        writer.write(self._end)
        await writer.drain()
        return self._stays


@contextlib.asynccontextmanager
async def byte_server() -> AsyncIterator[ByteServer]:
    """One server inside the running loop."""
    scripted = ByteServer()
    async with stream_server(scripted.handle) as scripted.port:
        yield scripted
