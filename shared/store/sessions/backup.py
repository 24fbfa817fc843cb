"""A session as one document: written out whole, read back all or nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, RedisAway, Refused, ShoalError
from shared.ids import nonce, session_id, split_session
from shared.messages.codec import RECORD_LIMIT_BYTES, encode
from shared.messages.inbound import RESERVED_CHANNELS
from shared.messages.outbound import LogLine, decode_line
from shared.messages.schedule import AtPlan, Schedule
from shared.messages.sources import Sources, merge_sources, pack_sources, parse_sources
from shared.messages.transcript import TranscriptEntry, decode_transcript
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules, rebound
from shared.store.schedules.times import check_plan, check_timezone
from shared.store.sessions.details import SessionDetails, pack_metadata, parse_details
from shared.store.sessions.log_pages import LogPages
from shared.store.sessions.memory import MemoryChanged, MemoryLimits, MemoryStore, soul_scope
from shared.store.sessions.transcripts import pack_pages, unpack_page
from shared.store.turns.inbox import DAY_MS, SHARED_SCOPE, InboxLimits
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES

VERSION: Final = 2
"""Version of the document. A later one may contain more; older ones stay readable."""

FILE_LIMIT_BYTES: Final = 256 * 1024 * 1024
HOUR_MS: Final = 3_600_000
SCHEDULE_LIMIT_BYTES: Final = 32 * 1024
PAGE: Final = 64
PAGE_BYTES: Final = 256 * 1024
"""Limits of a page that is read or uploaded: all at once would hold the server up."""

EVERY_LINE: Final = 1_000_000  # more than the pages of a log have
READS: Final = 5
"""Tries to read a session at one moment. One that is answered changes every few seconds."""

UPLOAD_MS: Final = 600_000
_SCHEDULE: Final = re.compile(r"[0-9a-z]{1,32}")


class RestoreConflict(ShoalError):
    """The restore would replace something that exists."""


class SessionChanged(ShoalError):
    """The session has changed since it was read; nothing was written."""


class Numbered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the chat's log and its number."""

    seq: int
    line: LogLine


class SessionFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is kept of a session. `memory_md` and `history_md` (oldest entry first) are
    its memory, which `memory_sources` mark (the entries of a conversation have marks of their own);
    `soul_md` is its SOUL.md. The others are None in a file of a memory alone: the `conversation`;
    `archive`, earlier entries that are not in memory yet; `transcript`, all before them (None in a
    file of version 1, too); and the `log` of the chat as people saw it, which is not restored.
    `unreadable` counts records of a newer version, which are missing here. Times are in ms since
    1970, 0 if unknown."""

    kind: Literal["shoal session"]
    version: Annotated[int, msgspec.Meta(ge=1)]
    session: str
    exported_at: int
    created_at: int = 0
    updated_at: int = 0
    metadata: dict[str, str] = {}
    scope: str = ""
    memory_md: str = ""
    history_md: tuple[str, ...] = ()
    memory_sources: Sources = ()
    soul_md: str = ""
    conversation: tuple[TranscriptEntry, ...] | None = None
    archive: tuple[TranscriptEntry, ...] | None = None
    transcript: tuple[TranscriptEntry, ...] | None = None
    log: tuple[Numbered, ...] | None = None
    schedules: tuple[Schedule, ...] = ()
    unreadable: int = 0


class _FileHead(msgspec.Struct, frozen=True):
    kind: str = ""
    version: int = 0


class _StoredSession(NamedTuple):
    """A session as `sessions/read.lua` has it; `marks`: counter, generation, mark, archive mark."""

    marks: tuple[str, ...]
    waiting: int
    scope: str
    memory: str
    version: str
    memory_sources: Sources
    details: SessionDetails
    memlog: list[bytes]
    history: list[bytes]
    archive: list[bytes]
    transcript: list[bytes]
    log: list[Any]

    @property
    def is_new(self) -> bool:
        """True when no message was ever accepted in it."""
        return self.marks[0] == "0"


def write_file(file: SessionFile) -> bytes:
    """Encode the document as JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def read_file(data: bytes) -> SessionFile:
    """Parse a document and check every record of it. Raises BadInput."""
    if len(data) > FILE_LIMIT_BYTES:
        big = f"the file has {len(data):,} bytes; at most {FILE_LIMIT_BYTES:,} are read"
        raise BadInput("too_big", big)
    try:
        head = msgspec.json.decode(data, type=_FileHead)
        if head.kind != "shoal session":
            raise BadInput("bad_file", "this is no file that `shoal session export` wrote")
        if head.version > VERSION:
            raise BadInput(
                "newer_file",
                f"the file has version {head.version}, this release reads up to {VERSION}; use the one that wrote it",
            )
        return msgspec.json.decode(data, type=SessionFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadInput("bad_file", f"the file cannot be read: {exc}") from None


class SessionBackup:
    """Export and restore of sessions. Every method raises RedisAway and SessionChanged."""

    def __init__(self, client: RedisClient, settings: Settings) -> None:
        self._client = client
        self._souls = MemoryStore(client)
        self._memory = settings.memory
        self._cron = settings.cron
        self._schedules = Schedules(client, settings.cron)
        self._keep_ms = InboxLimits().session_days * DAY_MS
        self._keep_memory_ms = MemoryLimits().keep_days * DAY_MS

    async def export(self, session: str, *, now_ms: int, memory_only: bool = False) -> SessionFile:
        """Read everything that is kept of a session at this moment, or its memory alone."""
        read = await self._read_session(session, whole=not memory_only)
        file = SessionFile(
            kind="shoal session",
            version=VERSION,
            session=session,
            exported_at=now_ms,
            scope=read.scope,
            memory_md=read.memory,
            history_md=tuple(entry.decode(errors="replace") for entry in read.memlog),
            memory_sources=read.memory_sources,
            soul_md=(await self._souls.read_memory(soul_scope(session))).text,
        )
        if memory_only:
            return file
        file = msgspec.structs.replace(file, **msgspec.structs.asdict(read.details))
        conversation = tuple(filter(None, map(decode_transcript.or_none, read.history)))
        archive = tuple(filter(None, map(decode_transcript.or_none, read.archive)))
        transcript = tuple(filter(None, map(decode_transcript.or_none, read.transcript)))
        log = tuple(
            Numbered(int(id.split(b"-")[0]), line)
            for id, fields in read.log
            if (line := decode_line.or_none(fields[1])) is not None
        )
        stored = len(read.history) + len(read.archive) + len(read.transcript) + len(read.log)
        return msgspec.structs.replace(
            file,
            conversation=conversation,
            archive=archive,
            transcript=transcript,
            log=log,
            schedules=tuple(one.schedule for one in await self._schedules.of_session(session)),
            unreadable=stored - len(conversation) - len(archive) - len(transcript) - len(log),
        )

    async def restore(self, file: SessionFile, session: str, *, replace: bool = False) -> None:
        """Replace the memory of `session` by that of the file and, if it has one, the conversation,
        too; all or nothing. Schedules that still have a tick to come are added to those of the
        session. Raises BadInput for a file that does not fit, RestoreConflict unless `replace`,
        SessionChanged, and Refused (`busy`) while messages wait for their answers."""
        if split_session(session)[0] in RESERVED_CHANNELS:
            own = f"session {session!r} is Shoal's own; restore into one of a person"
            raise BadInput("reserved_channel", own)
        # Every check comes before the first write.
        entries, archive, pages = self._checked(file)
        planned = self._planned(file, session)
        there = {one.schedule.id for one in await self._schedules.of_session(session)}
        if len(there.union(one.id for one, _ in planned)) > self._cron.per_chat:
            many = f"with those there it would have more than {self._cron.per_chat} schedules"
            raise BadInput("too_many", many)
        read = await self._read_session(session, whole=False)
        scope = self._scope(session, read)
        idle_ms = int(self._memory.idle_s * 1000)
        rework_ms = int(self._memory.rework_h * HOUR_MS)
        log = [entry.encode() for entry in file.history_md]
        lists = log, entries, archive, pages or []
        uploads = [keys.upload(nonce()) for _ in lists]
        n, generation, mark, archive_mark = read.marks
        try:
            sizes = [await self._upload(upload, records) for upload, records in zip(uploads, lists, strict=True)]
            talk = 0 if file.conversation is None else 1 if pages is None else 2
            keep_pages_ms = self._memory.archive_days * DAY_MS
            done = await self._client.run(
                "sessions/restore",
                session=session,
                memory=keys.memory(scope),
                memlog=keys.memlog(scope),
                memlog_upload=uploads[0],
                history_upload=uploads[1],
                archive_upload=uploads[2],
                pages_upload=uploads[3],
                replace=int(replace),
                n=n,
                gen=generation,
                mark=mark,
                archive_mark=archive_mark,
                version=read.version,
                scope=scope,
                keep_session_ms=self._keep_ms,
                keep_memory_ms=self._keep_memory_ms,
                idle_ms=idle_ms,
                rework_ms=rework_ms,
                memory_md=file.memory_md,
                talk=talk,
                memlog_many=len(log),
                memlog_bytes=sizes[0],
                history_many=len(entries),
                history_bytes=sizes[1],
                archive_many=len(archive),
                archive_bytes=sizes[2],
                pages_many=len(pages or []),
                pages_bytes=sizes[3],
                memory_sources=pack_sources(file.memory_sources),
                sources=pack_sources(_sources_of(file)),
                created=file.created_at if file.created_at > 0 else "",
                updated=file.updated_at if file.updated_at > 0 else "",
                meta=pack_metadata(file.metadata) if file.metadata else "",
                keep_pages_ms=keep_pages_ms,
            )
        finally:
            with contextlib.suppress(RedisAway):
                await self._client.command("DEL", *uploads)
        name = f"session {session!r}"
        if done == b"occupied":
            raise RestoreConflict(f"{name} has a memory or a conversation; --force replaces it")
        if done == b"changed":
            raise SessionChanged(f"{name} has changed at this moment; nothing was written, try again")
        if done == b"waiting":
            waiting = f"messages of {name} wait for their answers; try again later"
            raise Refused("busy", waiting, 10)
        if file.soul_md:
            soul = await self._souls.read_memory(soul_scope(session))
            scope = soul_scope(session)
            with contextlib.suppress(MemoryChanged):  # the agent wrote it at this moment: that is newer
                await self._souls.write_memory(scope, file.soul_md, version=soul.version)
        # After the restore, each once by its id: a repeated call adds none twice.
        for schedule, first_ms in planned:
            await self._schedules.add(schedule, first_ms, once=False)

    async def _upload(self, key: str, records: Sequence[bytes]) -> int:
        """Store the records in pages, for the script that puts them in place; return their
        bytes."""
        page = list[bytes]()
        page_bytes = 0
        for at, record in enumerate(records, start=1):
            page.append(record)
            page_bytes += len(record)
            if page_bytes >= PAGE_BYTES or len(page) == PAGE or at == len(records):
                await self._client.pipeline([("RPUSH", key, *page), ("PEXPIRE", key, UPLOAD_MS)])
                page = []
                page_bytes = 0
        return sum(map(len, records))

    async def _read_session(self, session: str, *, whole: bool) -> _StoredSession:
        head = await self._client.run("sessions/read", session=session)
        for _ in range(READS):
            *marks, waiting, scope, memory, version = head[:8]
            log = await self._read_list(keys.memlog(scope.decode()))
            talk: tuple[list[Any], ...] = ([], [], [], [])
            if whole:
                history = keys.history(session)
                archive = keys.archive(session)
                pages = await self._read_stream(keys.transcript(session))
                left = [record for page in pages for record in unpack_page(page)]
                lines = await self._read_stream(keys.outbox(session))
                first = int(lines[0][0].split(b"-")[0]) if lines else None
                paged = await LogPages(self._client).read_before(session, first, EVERY_LINE)
                lines = [*((b"%d-0" % seq, [b"m", record]) for seq, record in paged), *lines]
                talk = await self._read_list(history), await self._read_list(archive), left, lines
            before = head
            head = await self._client.run("sessions/read", session=session)
            # Nothing has happened meanwhile, so that the pages are of one moment.
            if head == before:
                counters = tuple(mark.decode() for mark in marks)
                stored = scope.decode(), memory.decode(errors="replace"), version.decode()
                about = parse_sources(head[12]), parse_details(*head[13:16])
                return _StoredSession(counters, waiting, *stored, *about, log, *talk)
        raise SessionChanged(f"session {session!r} changes faster than it can be read; try again")

    async def _read_list(self, key: str) -> list[bytes]:
        found: list[bytes] = []
        while page := await self._client.command("LRANGE", key, len(found), len(found) + PAGE - 1):
            found += page
        return found

    async def _read_stream(self, key: str) -> list[Any]:
        found: list[Any] = []
        start = "-"
        while page := await self._client.command("XRANGE", key, start, "+", "COUNT", PAGE):
            found += page
            start = f"({page[-1][0].decode()}"
        return found

    def _scope(self, session: str, read: _StoredSession) -> str:
        """Return the memory scope: that of the last message, or the one the first will have."""
        if not read.is_new or self._memory.scope == "chat":
            return read.scope
        if self._memory.scope == "shared":
            return SHARED_SCOPE
        raise BadInput(
            "no_person",
            f"nobody has written in {session!r} yet, and with memory.scope 'user' its memory is "
            "that of its person; restore it after their first message",
        )

    def _planned(self, file: SessionFile, session: str) -> list[tuple[Schedule, int]]:
        """Return the schedules with a tick to come, and that tick. Raises BadInput."""
        now_ms = SYSTEM_CLOCK.now_ms()
        for one in file.schedules:
            if not _SCHEDULE.fullmatch(one.id):
                wrong = f"{one.id!r} is no id of a schedule; use lower-case letters and digits"
                raise BadInput("bad_file", wrong)
            check_timezone(one.timezone)
            _within(f"schedule {one.id!r}", len(one.text.encode()), SCHEDULE_LIMIT_BYTES)
        if len(file.schedules) > self._cron.per_chat:
            many = f"a chat has at most {self._cron.per_chat} schedules; raise cron.per_chat"
            raise BadInput("too_many", many)
        return [
            (one, check_plan(one.plan, now_ms=now_ms, min_every_s=self._cron.min_every_s))
            for one in rebound(file.schedules, session)
            if not (isinstance(one.plan, AtPlan) and one.plan.at_ms <= now_ms)
        ]

    def _checked(self, file: SessionFile) -> tuple[list[bytes], list[bytes], list[bytes] | None]:
        """Return conversation, archive and pages of the transcript (None: it stays as it is) of a
        file, checked against a worker's limits. Raises BadInput."""
        memory = self._memory
        log_bytes = sum(len(one.encode()) for one in file.history_md)
        _within("MEMORY.md", len(file.memory_md.encode()), memory.file_bytes, "memory.file_bytes")
        _within("SOUL.md", len(file.soul_md.encode()), memory.file_bytes, "memory.file_bytes")
        _within("HISTORY.md", log_bytes, memory.log_bytes, "memory.log_bytes")
        if not all(one.strip() for one in file.history_md):
            raise BadInput("bad_file", "history_md has an empty entry; take it out")
        conversation = _records(file.conversation, "conversation")
        archive = _records(file.archive, "archive")
        _within("the conversation", sum(map(len, conversation)), HISTORY_CAP_BYTES)
        if file.transcript is None or not memory.archive_days:
            return conversation, archive, None
        pages = pack_pages(_records(file.transcript, "transcript"))
        _within("the transcript", sum(map(len, pages)), memory.archive_bytes, "memory.archive_bytes")
        return conversation, archive, pages


def session_name(name: str) -> str:
    """Parse `channel:chat`, percent-encoded or not, into a session. Raises BadInput."""
    channel, chat = split_session(name)
    if not channel or not chat:
        wrong = f"{name!r} is no session; write channel:chat, such as web:owner/terminal"
        raise BadInput("bad_session", wrong)
    return session_id(channel, chat)


def _sources_of(file: SessionFile) -> Sources:
    """Return the sources that mark the entries of a conversation: a later turn reads them all."""
    return merge_sources(*(entry.sources for entry in file.conversation or ()))


def _records(entries: Iterable[TranscriptEntry] | None, where: str) -> list[bytes]:
    records = []
    for at, entry in enumerate(entries or ()):
        try:
            record = encode(entry)
        except (OverflowError, UnicodeEncodeError) as exc:
            raise BadInput("bad_file", f"{where}[{at}] cannot be stored: {exc}") from None
        _within(f"{where}[{at}]", len(record), RECORD_LIMIT_BYTES)
        records.append(record)
    return records


def _within(what: str, size_bytes: int, limit_bytes: int, setting: str = "") -> None:
    if size_bytes > limit_bytes:
        advice = f"; raise {setting}" if setting else ""
        big = f"{what} has {size_bytes:,} bytes; at most {limit_bytes:,} are kept{advice}"
        raise BadInput("too_big", big)
