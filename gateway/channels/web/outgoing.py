"""What waits to be sent to one socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

FRAMES_LIMIT: Final = 1024
CHARS_LIMIT: Final = 8 * 1024 * 1024
"""More than either means that the client does not read: the socket is given up, and resumes later from the log."""

LIVE_LIMIT: Final = 64
"""While so many frames wait, what is only shown live is left out; a full delta heals it."""

ROOM: Final = 32
"""Who reads a log for the socket goes on when fewer frames wait."""

_ROOM_CHARS: Final = 256 * 1024


class Outgoing:
    """A bounded queue of frames for one socket."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        self._on_overflow = on_overflow
        self._frames: deque[str] = deque()
        self._chars = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: str) -> None:
        """Send this, in order. Calls `on_overflow` when too much waits already."""
        if self._closed:
            return
        if len(self._frames) >= FRAMES_LIMIT or self._chars > CHARS_LIMIT:
            self._frames.clear()
            self._chars = 0
            self.finish()
            self._on_overflow()
            return
        self._frames.append(frame)
        self._chars += len(frame)
        self._some.set()
        if not self._has_room():
            self._room.clear()

    def put_live(self, frame: str) -> None:
        """Send this unless much waits."""
        if len(self._frames) < LIVE_LIMIT and self._chars <= _ROOM_CHARS:
            self.put(frame)

    async def next(self) -> str | None:
        """The next frame to send; None when there will be no more."""
        while not self._frames:
            if self._closed:
                return None
            self._some.clear()
            await self._some.wait()
        frame = self._frames.popleft()
        self._chars -= len(frame)
        if self._has_room():
            self._room.set()
        return frame

    async def room(self) -> None:
        """Return when little waits."""
        await self._room.wait()

    def finish(self) -> None:
        """Take nothing more; what waits is still sent."""
        self._closed = True
        self._some.set()
        self._room.set()

    def _has_room(self) -> bool:
        return len(self._frames) < ROOM and self._chars <= _ROOM_CHARS
