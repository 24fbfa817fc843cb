"""A server of streams that leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as tls
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from shared.tasks import cancel_all

ROUNDS: Final = 10
"""Turns of the loop that asyncio may need between accepting a connection and calling `accept`, and more to spare."""

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def stream_server(
    handle: Handle, *, limit: int = 64 * 1024, ssl: tls.SSLContext | None = None
) -> AsyncIterator[int]:
    """Calls `handle` for each connection to a free port of 127.0.0.1; the port. A connection ends with its call, and
    all of them with the block: asyncio itself leaves one open whose task was cancelled before it began."""
    at_work: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            at_work.discard(task)
            writer.close()
            if not task.cancelled() and (error := task.exception()) is not None:
                loop.call_exception_handler({"message": "a connection failed", "exception": error})

        task = loop.create_task(handle(reader, writer))
        at_work.add(task)
        task.add_done_callback(ended)

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=limit, ssl=ssl)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(ROUNDS):  # a connection that was accepted before may reach its task only now
            await cancel_all(at_work)
            await asyncio.sleep(0)
