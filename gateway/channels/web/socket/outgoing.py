"""What is sent to one socket, and what waits because its client reads slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

FRAMES_LIMIT: Final = 1024
BYTES_LIMIT: Final = 8 * 1024 * 1024
"""More than either means that the client does not read: the socket is given up, and resumes later
from the log."""

LIVE_LIMIT: Final = 64
"""While so many frames wait, what is only shown live is left out; a full delta heals it."""

DRAINED_FRAMES: Final = 32
"""Who reads a log for the socket goes on when fewer frames wait."""

DRAINED_BYTES: Final = 256 * 1024


class FrameWriter(Protocol):
    """Where frames go: `gateway.channels.web.socket.connection.PageConnection`."""

    full: bool

    def write(self, text: bytes) -> None: ...


class SendQueue:
    """The way of frames to one socket, in order. While its connection is full they wait, up to a
    limit; `give_up` is called, once, when that is reached, or when the connection stays full for
    `stuck_s`."""

    # A page that rests has nothing here: no task, no event, no queue.
    __slots__ = ("_bytes", "_closed", "_connection", "_give_up", "_progress", "_stuck", "_stuck_s", "_waiting")

    def __init__(self, connection: FrameWriter, *, stuck_s: float, give_up: Callable[[], None]) -> None:
        self._connection = connection
        self._stuck_s = stuck_s
        self._give_up = give_up
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._stuck: asyncio.TimerHandle | None = None
        self._progress: asyncio.Event | None = None
        self._closed = False

    def send(self, frame: bytes) -> None:
        """Send this."""
        if self._closed:
            return
        if not self._waiting and not self._connection.full:
            self._connection.write(frame)
            return
        if len(self._waiting) >= FRAMES_LIMIT or self._bytes > BYTES_LIMIT:
            self._give_up_now()
            return
        self._waiting.append(frame)
        self._bytes += len(frame)
        if self._stuck is None:
            self._stuck = asyncio.get_running_loop().call_later(self._stuck_s, self._give_up_now)

    def send_live(self, frame: bytes) -> None:
        """Send this unless much waits."""
        if len(self._waiting) < LIVE_LIMIT and self._bytes <= DRAINED_BYTES:
            self.send(frame)

    def resume(self) -> None:
        """The connection has room again."""
        sent = 0
        while sent < len(self._waiting) and not self._connection.full:
            frame = self._waiting[sent]
            sent += 1
            self._bytes -= len(frame)
            self._connection.write(frame)
        del self._waiting[:sent]
        self._on_progress()
        if self._waiting:
            self._stuck = asyncio.get_running_loop().call_later(self._stuck_s, self._give_up_now)

    async def drain(self) -> None:
        """Return when little waits."""
        while len(self._waiting) >= DRAINED_FRAMES or self._bytes > DRAINED_BYTES:
            await self._wait_for_progress()

    async def flush(self) -> None:
        """Return when nothing waits."""
        while self._waiting:
            await self._wait_for_progress()

    def finish(self) -> None:
        """Take nothing more; what waits is still sent."""
        self._closed = True

    def drop(self) -> None:
        """Take nothing more, and let go what waits."""
        self._closed = True
        self._waiting = []
        self._bytes = 0
        self._on_progress()

    def _give_up_now(self) -> None:
        self.drop()
        self._give_up()

    def _on_progress(self) -> None:
        """Some frames went: nobody is stuck, and who waits for that looks again."""
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    async def _wait_for_progress(self) -> None:
        if self._progress is None:
            self._progress = asyncio.Event()
        await self._progress.wait()
