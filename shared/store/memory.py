"""What a chat remembers beyond its conversation: MEMORY.md, HISTORY.md, and how conversations become both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from shared.errors import LeaseLost, ShoalError
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.inbox import DAY_MS, TURNS
from shared.store.queue import Claim
from shared.store.scripts import load

Source = Literal["history", "archive"]
"""Where entries wait for consolidation: the conversation that goes on, or those that `/new` ended."""

_MARKS: dict[Source, str] = {"history": "mark", "archive": "archive_mark"}
_LISTS = {"history": keys.history, "archive": keys.archive}


class MemoryChanged(ShoalError):
    """MEMORY.md was written by somebody else in between: read it again and redo the change on the new text."""


class MemoryText(msgspec.Struct, frozen=True):
    """A MEMORY.md as it was read. `version` is what a write must name; `"0"` is that of one never written."""

    text: str = ""
    version: str = "0"


class Unconsolidated(msgspec.Struct, frozen=True):
    """A conversation as it was read: raw entries, oldest first, the mark of the first one, and whose memory it feeds."""

    source: Source
    entries: tuple[bytes, ...]
    mark: str
    scope: str


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How big a HISTORY.md may be, and how long memory is kept without being written."""

    log_bytes: int = 1024 * 1024
    keep_days: int = 365


class MemoryStore:
    """MEMORY.md and HISTORY.md of every scope. All writes compare and swap; nothing is overwritten unseen."""

    def __init__(self, client: RedisClient, limits: MemoryLimits | None = None) -> None:
        self._client = client
        self._limits = limits or MemoryLimits()
        self._remember, self._consolidate = load("remember"), load("consolidate")

    async def read(self, scope: str) -> MemoryText:
        """MEMORY.md of a scope; empty when nothing was ever remembered. Raises RedisAway."""
        text, version = await self._client.command("HMGET", keys.memory(scope), "text", "v")
        return MemoryText((text or b"").decode(errors="replace"), (version or b"0").decode())

    async def write(self, scope: str, text: str, *, version: str, claim: Claim | None = None) -> str:
        """Replace MEMORY.md if it still has `version`; its new version. A turn gives its claim, and writes only while
        it holds it. Raises MemoryChanged, LeaseLost, RedisAway."""
        answer = await self._client.run(
            self._remember,
            [keys.memory(scope), keys.leases(TURNS)],
            [
                version, text, self._limits.keep_days * DAY_MS,
                claim.member if claim else "", claim.lease if claim else "",
            ],
        )  # fmt: skip
        if answer[0] == -1:
            raise LeaseLost("the turn that wanted to write MEMORY.md is not ours any more")
        if answer[0] == 0:
            raise MemoryChanged(f"MEMORY.md is not at version {version!r} any more; read it again")
        written: bytes = answer[1]
        return written.decode()

    async def log(self, scope: str) -> list[str]:
        """The entries of HISTORY.md, oldest first. Raises RedisAway."""
        entries = await self._client.command("LRANGE", keys.memlog(scope), 0, -1)
        return [entry.decode(errors="replace") for entry in entries]

    async def unconsolidated(self, session: str, source: Source = "history", *, limit: int = 2000) -> Unconsolidated:
        """The oldest entries of a conversation that are not in memory yet. Raises RedisAway."""
        entries, told = await self._client.pipeline(
            [
                ("LRANGE", _LISTS[source](session), 0, limit - 1),
                ("HMGET", keys.session(session), _MARKS[source], "scope"),
            ]
        )
        mark, scope = told
        return Unconsolidated(
            source, tuple(entries), (mark or b"0").decode(), scope.decode() if scope else f"chat:{session}"
        )

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
        """Replace the first `take` entries of what was `read` by `entry` in HISTORY.md (`""` = none) and, when given,
        by a new MEMORY.md: `memory` has the new text and the version of the old one.

        True when it was done; False when these entries were gone already: consolidated by another worker, archived by
        `/new` or forgotten. With `rework_ms`, MEMORY.md is due to be written anew after that time. Raises
        MemoryChanged, RedisAway.
        """
        limits = self._limits
        done = await self._client.run(
            self._consolidate,
            [
                keys.session(session), _LISTS[read.source](session), keys.memory(read.scope), keys.memlog(read.scope),
                keys.REWORK,
            ],
            [
                _MARKS[read.source], read.mark, take, memory.version if memory else "", memory.text if memory else "",
                entry, limits.log_bytes, limits.keep_days * DAY_MS, rework_ms, read.scope,
            ],
        )  # fmt: skip
        if done == -1:
            raise MemoryChanged("MEMORY.md was changed in between; read it again")
        return bool(done == 1)

    async def due(self, key: str, now_ms: int, limit: int = 100) -> Sequence[str]:
        """Members of `keys.IDLE` or `keys.REWORK` whose time has come."""
        found = await self._client.command("ZRANGEBYSCORE", key, "-inf", now_ms, "LIMIT", 0, limit)
        return [member.decode() for member in found]

    async def settle(self, key: str, member: str) -> None:
        """Take a member out of `keys.IDLE` or `keys.REWORK`: it is looked after."""
        await self._client.command("ZREM", key, member)
