"""Memory of a chat: MEMORY.md, HISTORY.md, and how conversations become both."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.errors import LeaseLost, ShoalError
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.agenda import Agenda
from shared.store.turns.inbox import DAY_MS, TURNS
from shared.store.turns.queue import Claim

Source = Literal["history", "archive"]
"""List from which entries are consolidated: the running conversation, or what `/new` ended."""

_MARKS: dict[Source, str] = {"history": "mark", "archive": "archive_mark"}
_LISTS = {"history": keys.history, "archive": keys.archive}


class MemoryChanged(ShoalError):
    """MEMORY.md was changed meanwhile: read it again and redo the change on the new text."""


class MemoryText(msgspec.Struct, frozen=True):
    """A MEMORY.md as it was read. A write must name its `version`, `"0"` for an unwritten one."""

    text: str = ""
    version: str = "0"


class Unconsolidated(msgspec.Struct, frozen=True):
    """A conversation as it was read: raw entries, oldest first, the mark of the first one, and the
    memory scope it feeds. `mark` counts the entries that ever left the conversation at its head, so
    that it identifies the first one. `total` counts all entries, also unread ones."""

    source: Source
    entries: tuple[bytes, ...]
    mark: int
    scope: str
    total: int


class UnconsolidatedCounts(msgspec.Struct, frozen=True):
    """Numbers of entries of a session that are not in memory yet."""

    history: int
    archive: int


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a HISTORY.md, and days for which memory is kept without a write."""

    log_bytes: int = 1024 * 1024
    keep_days: int = 365


class MemoryStore:
    """MEMORY.md and HISTORY.md of every scope. All writes compare and swap; nothing is overwritten
    unseen. `idle` has the sessions to consolidate, `rework` the scopes with a MEMORY.md to
    rewrite."""

    def __init__(self, client: RedisClient, limits: MemoryLimits | None = None) -> None:
        self._client = client
        self._limits = limits or MemoryLimits()
        self.idle, self.rework = Agenda(client, keys.IDLE), Agenda(client, keys.REWORK)

    async def read_memory(self, scope: str) -> MemoryText:
        """Read MEMORY.md of a scope; empty when nothing was ever stored. Raises RedisAway."""
        text, version = await self._client.command("HMGET", keys.memory(scope), "text", "v")
        return MemoryText((text or b"").decode(errors="replace"), (version or b"0").decode())

    async def write_memory(self, scope: str, text: str, *, version: str, claim: Claim | None = None) -> str:
        """Replace MEMORY.md if it still has `version`; return its new version. A turn passes its
        claim and needs its lease. Raises MemoryChanged, LeaseLost, RedisAway."""
        fence = claim.fence if claim else ("", "")
        answer = await self._client.run(
            "sessions/remember",
            [keys.memory(scope), keys.leases(TURNS)],
            [version, text, self._limits.keep_days * DAY_MS, *fence],
        )
        if answer[0] == -1:
            raise LeaseLost("the turn that wanted to write MEMORY.md is not ours any more")
        if answer[0] == 0:
            changed = f"MEMORY.md is not at version {version!r} any more"
            raise MemoryChanged(f"{changed}; read it again")
        written: bytes = answer[1]
        return written.decode()

    async def read_log(self, scope: str) -> list[str]:
        """Read the entries of HISTORY.md, oldest first. Raises RedisAway."""
        entries = await self._client.command("LRANGE", keys.memlog(scope), 0, -1)
        return [entry.decode(errors="replace") for entry in entries]

    async def read_unconsolidated(
        self, session: str, source: Source = "history", *, limit: int = 2000
    ) -> Unconsolidated:
        """Read the oldest entries that are not in memory yet. Raises RedisAway."""
        # The mark first: were it read last, entries that left in between would give these a mark
        # that is not theirs.
        listed = _LISTS[source](session)
        (mark, scope), entries, total = await self._client.pipeline(
            [
                ("HMGET", keys.session(session), _MARKS[source], "scope"),
                ("LRANGE", listed, 0, limit - 1),
                ("LLEN", listed),
            ]
        )
        scope = scope.decode() if scope else f"chat:{session}"
        return Unconsolidated(source, tuple(entries), int(mark or 0), scope, total)

    async def count_unconsolidated(self, session: str) -> UnconsolidatedCounts:
        """Count the entries of a session that are not in memory yet. Raises RedisAway."""
        commands = [("LLEN", keys.history(session)), ("LLEN", keys.archive(session))]
        return UnconsolidatedCounts(*await self._client.pipeline(commands))

    async def consolidate(
        self,
        session: str,
        read: Unconsolidated,
        *,
        take: int,
        entry: str,
        memory: MemoryText | None = None,
        rework_ms: int = 0,
    ) -> bool:
        """Replace the first `take` entries of what was `read` by `entry` in HISTORY.md (`""` =
        none) and, when given, by a new MEMORY.md: `memory` has the new text and the version of the
        old one. Return False when these entries are gone already: consolidated by another worker or
        by an earlier call whose reply was lost, archived by `/new`, or forgotten. With `rework_ms`,
        MEMORY.md is due to be rewritten after that time. Raises MemoryChanged, RedisAway."""
        if not 0 < take <= len(read.entries):
            most = f"it must be from 1 to the {len(read.entries)} entries that were read"
            raise ValueError(f"take is {take!r}; {most}")
        scope, limits = read.scope, self._limits
        conversation = keys.session(session), _LISTS[read.source](session)
        new_memory = (memory.version, memory.text) if memory else ("", "")
        kept = limits.log_bytes, limits.keep_days * DAY_MS, rework_ms
        done = await self._client.run(
            "sessions/consolidate",
            [*conversation, keys.memory(scope), keys.memlog(scope), keys.REWORK],
            [_MARKS[read.source], read.mark, take, *new_memory, entry, *kept, scope, read.entries[0]],
        )
        if done == -1:
            raise MemoryChanged("MEMORY.md was changed in between; read it again")
        return bool(done == 1)
