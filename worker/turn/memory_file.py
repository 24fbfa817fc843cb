"""MEMORY.md and HISTORY.md, which are kept in the store, as files of a turn."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from shared.errors import RedisAway, ToolFailed
from shared.store.sessions.memory import MemoryChanged, MemoryStore, MemoryText
from shared.store.turns.queue import Claim

MEMORY: Final = "MEMORY.md"
HISTORY: Final = "HISTORY.md"

_CHANGED: Final = (
    f"{MEMORY!r} was changed by somebody else since you read it, and is not written. "
    "Read it again and make your change to the new text"
)

T = TypeVar("T")


class MemoryFile:
    """Both files in memory scope `scope`. `seen` is MEMORY.md as the model saw it last; with
    `claim` it is written only while the turn holds its lease. `limit_bytes` caps it."""

    def __init__(
        self, store: MemoryStore, scope: str, seen: MemoryText, *, claim: Claim | None, limit_bytes: int
    ) -> None:
        self.seen = seen
        self._store = store
        self._scope = scope
        self._claim = claim
        self._limit_bytes = limit_bytes

    async def read(self) -> str:
        self.seen = await _await_store(self._store.read_memory(self._scope))
        return self.seen.text

    async def history(self) -> str:
        """Return HISTORY.md, with a blank line between two entries."""
        entries = await _await_store(self._store.read_log(self._scope))
        return "\n\n".join(filter(None, map(_without_gaps, entries)))

    async def replace(self, text: str, was: str | None, *, as_of: str | None = None) -> None:
        """Write MEMORY.md by compare-and-swap: never over a text that the model has not seen.

        `as_of` is the version that the model had seen when it asked for a whole new text on another
        worker; `seen` is newer then.
        """
        size_bytes = len(text.encode())
        if size_bytes > self._limit_bytes:
            raise ToolFailed(
                f"{MEMORY!r} would have {size_bytes:,} bytes; at most {self._limit_bytes:,} are allowed. "
                "Shorten it: merge what belongs together and remove what no longer matters"
            )
        if was is None and as_of not in (None, self.seen.version):
            now = await _await_store(self._store.read_memory(self._scope))
            if now.text != text:
                raise ToolFailed(_CHANGED)
            self.seen = now  # that worker wrote it and died before it could report that
            return
        await self._write(text, self.seen.text if was is None else was)

    async def _write(self, text: str, was: str) -> None:
        if self.seen.text == was and await self._swap(self.seen, text):
            return
        now = await _await_store(self._store.read_memory(self._scope))
        if now.text == text:
            self.seen = now  # an earlier attempt of this turn did it
            return
        if now.text == was and await self._swap(now, text):
            return
        raise ToolFailed(_CHANGED)

    async def _swap(self, base: MemoryText, text: str) -> bool:
        write = self._store.write_memory(self._scope, text, version=base.version, claim=self._claim)
        try:
            version = await _await_store(write)
        except MemoryChanged:
            return False
        self.seen = MemoryText(text, version)
        return True


def _without_gaps(entry: str) -> str:
    """Remove blank lines from an entry of HISTORY.md, so that one always separates two entries."""
    return "\n".join(line.rstrip() for line in entry.splitlines() if line.strip())


async def _await_store(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except RedisAway:
        raise ToolFailed(
            "the memory cannot be reached just now. If this was to write something, read it before you try again"
        ) from None
