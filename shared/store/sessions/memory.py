"""Memory of a chat: MEMORY.md, HISTORY.md, and how conversations become both."""

from __future__ import annotations

import asyncio
from typing import Literal, Self

import msgspec

from shared.errors import LeaseLost, ShoalError
from shared.ids import session_id
from shared.messages.sources import Sources, merge_sources, pack_sources, parse_sources
from shared.settings import MemorySettings
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, pairs
from shared.store.schedules.agenda import Agenda
from shared.store.sessions.transcripts import Transcripts, pack_pages
from shared.store.sessions.trust import NO_TRUST, TRUST_FIELDS, Trust
from shared.store.turns.inbox import DAY_MS, TURNS
from shared.store.turns.queue import Claim

Source = Literal["history", "archive"]
"""List from which entries are consolidated: the running conversation, or what `/new` ended."""

_MARKS: dict[Source, str] = {"history": "mark", "archive": "archive_mark"}
_LISTS = {"history": keys.history, "archive": keys.archive}


class MemoryChanged(ShoalError):
    """MEMORY.md was changed meanwhile: read it again and redo the change on the new text."""


class MemoryText(msgspec.Struct, frozen=True):
    """A MEMORY.md as it was read. A write must name its `version`, `"0"` for an unwritten one.
    `sources` mark the memory (see shared.messages.sources)."""

    text: str = ""
    version: str = "0"
    sources: Sources = ()


class EarlierText(msgspec.Struct, frozen=True):
    """A text that a memory had, and its version, which is the time in us from which it had it."""

    version: str
    text: str

    @property
    def code(self) -> str:
        """Name the version for people; unique among those that are kept, but for a rare
        accident."""
        return f"{int(self.version):x}"[-5:]


def soul_scope(session: str) -> str:
    """Return the scope of a chat's own SOUL.md."""
    return f"soul:{session}"


def about_scope(channel: str, sender_id: str) -> str:
    """Return the scope of a person's USER.md, the same in all their chats of a channel."""
    return f"about:{session_id(channel, sender_id)}"


class Unconsolidated(msgspec.Struct, frozen=True):
    """A conversation as it was read: raw entries, oldest first, the mark of the first one, and the
    memory scope it feeds. `mark` counts the entries that ever left the conversation at its head, so
    that it identifies the first one. `total` counts all entries, also unread ones. What a person
    has `trusted` marks nothing any more."""

    source: Source
    entries: tuple[bytes, ...]
    mark: int
    scope: str
    total: int
    trusted: Trust = NO_TRUST

    def sources(self, take: int) -> Sources:
        """Return the sources that mark the first `take` entries. Reads nothing else of an entry,
        for it may be one that no worker survives."""
        marks: list[Sources] = []
        for record in self.entries[:take]:
            if b"sources" in record:
                try:
                    entry = _decode_mark(record)
                except msgspec.MsgspecError:
                    entry = EntryMark(sources=("an old conversation",))
                marks.append(self.trusted.left_of(entry.turn, entry.sources))
        return merge_sources(*marks)


class EntryMark(msgspec.Struct, frozen=True):
    """The mark of an entry of a conversation, and its turn."""

    turn: int = 0
    sources: Sources = ()


_decode_mark = msgspec.msgpack.Decoder(EntryMark).decode


class UnconsolidatedCounts(msgspec.Struct, frozen=True):
    """Numbers of entries of a session that are not in memory yet."""

    history: int
    archive: int


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a HISTORY.md, and days for which memory is kept without a write; compressed size of a
    transcript, and days for which entries stay in it (0: there is none)."""

    log_bytes: int = 1024 * 1024
    keep_days: int = 365
    archive_bytes: int = 4 * 1024 * 1024
    archive_days: int = 365

    @classmethod
    def of(cls, settings: MemorySettings) -> Self:
        """Return the limits of these settings."""
        archive = settings.archive_bytes, settings.archive_days
        return cls(log_bytes=settings.log_bytes, archive_bytes=archive[0], archive_days=archive[1])


class MemoryStore:
    """MEMORY.md and HISTORY.md of every scope. All writes compare and swap; nothing is overwritten
    unseen. `idle` has the sessions to consolidate, `rework` the scopes with a MEMORY.md to
    rewrite, `transcripts` what left the conversations."""

    def __init__(self, client: RedisClient, limits: MemoryLimits | None = None) -> None:
        self._client = client
        self._limits = limits or MemoryLimits()
        self.idle, self.rework = Agenda(client, keys.IDLE), Agenda(client, keys.REWORK)
        self.transcripts = Transcripts(client)

    async def read_memory(self, scope: str) -> MemoryText:
        """Read MEMORY.md of a scope; empty when nothing was ever stored. Raises RedisAway."""
        [memory] = await self.read_memories(scope)
        return memory

    async def read_memories(self, *scopes: str) -> list[MemoryText]:
        """Read several in one round trip. Raises RedisAway."""
        commands = [("HMGET", keys.memory(scope), "text", "v", "sources") for scope in scopes]
        return [
            MemoryText((text or b"").decode(errors="replace"), (version or b"0").decode(), parse_sources(sources))
            for text, version, sources in await self._client.pipeline(commands)
        ]

    async def earlier_texts(self, scope: str) -> list[EarlierText]:
        """Read the texts that MEMORY.md had before, the newest first. Raises RedisAway."""
        fields = dict(pairs(await self._client.command("HGETALL", keys.memory(scope))))
        found = [(name[4:].decode(), text) for name, text in fields.items() if name.startswith(b"old:")]
        return [EarlierText(at, text.decode(errors="replace")) for at, text in sorted(found, reverse=True)]

    async def write_memory(
        self, scope: str, text: str, *, version: str, claim: Claim | None = None, sources: Sources = ()
    ) -> str:
        """Replace MEMORY.md if it still has `version`; return its new version. A turn passes its
        claim and needs its lease; the `sources` that mark it mark the memory. Raises MemoryChanged,
        LeaseLost, RedisAway."""
        member, lease = claim.fence if claim else ("", "")
        outcome, *now = await self._client.run(
            "sessions/remember",
            queue=TURNS,
            memory=keys.memory(scope),
            version=version,
            text=text,
            keep_ms=self._limits.keep_days * DAY_MS,
            member=member,
            lease=lease,
            sources=pack_sources(sources),
        )
        if outcome == b"lost":
            raise LeaseLost("the turn that wanted to write MEMORY.md is not ours any more")
        if outcome == b"changed":
            raise MemoryChanged(f"MEMORY.md is not at version {version!r} any more; read it again")
        written: bytes = now[0]
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
        (mark, scope, *trusted), entries, total = await self._client.pipeline(
            [
                ("HMGET", keys.session(session), _MARKS[source], "scope", *TRUST_FIELDS),
                ("LRANGE", listed, 0, limit - 1),
                ("LLEN", listed),
            ]
        )
        scope = scope.decode() if scope else f"chat:{session}"
        return Unconsolidated(source, tuple(entries), int(mark or 0), scope, total, Trust.parse(trusted))

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
        rework_entries: int = 0,
    ) -> bool:
        """Move the first `take` entries of what was `read` into the transcript, with `entry` in
        HISTORY.md (`""` = none) and, when given, by a new MEMORY.md: `memory` has the new text and
        the version of the old one. Return False when these entries are gone already: consolidated
        by another worker or by an earlier call whose reply was lost, archived by `/new`, or
        forgotten. With `rework_ms`, MEMORY.md is due to be rewritten after that time once
        HISTORY.md has `rework_entries`. Raises MemoryChanged, RedisAway."""
        if not 0 < take <= len(read.entries):
            raise ValueError(f"take is {take!r}; it must be from 1 to the {len(read.entries)} entries that were read")
        scope = read.scope
        limits = self._limits
        # In a thread: a long piece takes a while to compress.
        left = read.entries[:take] if limits.archive_days else ()
        pages = await asyncio.to_thread(pack_pages, left)
        done = await self._client.run(
            "sessions/consolidate",
            session=session,
            list=_LISTS[read.source](session),
            memory=keys.memory(scope),
            memlog=keys.memlog(scope),
            mark_field=_MARKS[read.source],
            mark=read.mark,
            many=take,
            version=memory.version if memory else "",
            text=memory.text if memory else "",
            entry=entry,
            memlog_bytes=limits.log_bytes,
            keep_memory_ms=limits.keep_days * DAY_MS,
            rework_ms=rework_ms,
            scope=scope,
            first=read.entries[0],
            sources=pack_sources(read.sources(take)),
            pages_bytes=limits.archive_bytes,
            keep_pages_ms=limits.archive_days * DAY_MS,
            rework_entries=rework_entries,
            pages=pack(pages),
        )
        if done == b"changed":
            raise MemoryChanged("MEMORY.md was changed in between; read it again")
        return bool(done == b"done")
