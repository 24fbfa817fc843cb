"""The transcript of a chat: everything that has left its conversation, whole, in compressed pages.
A page is one entry of a stream; its id says when it came."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from shared.errors import BadInput
from shared.messages import schedule, subagent
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.trust import NO_TRUST, TRUST_FIELDS, Trust

PAGE_BYTES: Final = 256 * 1024  # of records in a page; one record that is larger has its own
PAGE_LIMIT_BYTES: Final = 16 * 1024 * 1024
READS: Final = 5
_FIND_PAGES: Final = 1000
_PERSON_ENTRIES: Final = 1000
_CURSOR: Final = re.compile(r"(?:@[0-9a-f]{16}|\d{1,20}-\d{1,20}\.\d{0,9})?")
_records: Final = msgspec.msgpack.Decoder(list[bytes])
_NOBODY: Final = {"", schedule.SENDER, subagent.SENDER}  # senders of messages that no person wrote


class TranscriptPage(msgspec.Struct, frozen=True):
    """Records of a conversation, oldest first. `before` names what lies before them, `""` for
    nothing. What a person has `trusted` marks nothing any more."""

    records: tuple[bytes, ...] = ()
    before: str = ""
    trusted: Trust = NO_TRUST


class _Written(msgspec.Struct, frozen=True):
    """Who wrote an entry; only messages have a sender."""

    sender_id: str = ""


_decode_sender: Final = msgspec.msgpack.Decoder(_Written).decode


class Transcripts:
    """Reads a chat backwards, from its newest entry to its first: the conversation, the archive of
    what is not in memory yet, the transcript."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def read_back(self, session: str, before: str = "", *, limit: int = 50) -> TranscriptPage:
        """Read the newest `limit` entries, or those `before` a page read earlier. Fewer may come,
        even none; only an empty `before` says that there are no more. No entry is left out or
        repeated, whatever is consolidated in between. Raises BadInput for a wrong `before`,
        RedisAway."""
        if not _CURSOR.fullmatch(before):
            raise BadInput("bad_cursor", f"{before!r} is no place in a conversation; take one from a page before it")
        if "." in before:
            return await self._read_transcript(session, before, limit)
        marks = ("HMGET", keys.session(session), "mark", "archive_mark", *TRUST_FIELDS)
        for _ in range(READS):
            was, archive, history, newest, now = await self._client.pipeline(
                [
                    marks,
                    ("LRANGE", keys.archive(session), 0, -1),
                    ("LRANGE", keys.history(session), 0, -1),
                    ("XREVRANGE", keys.transcript(session), "+", "-", "COUNT", 1),
                    marks,
                ]
            )
            # The marks count what left either list: equal ones say that these are of one moment.
            if was[:2] == now[:2]:
                break
        records = [*archive, *history]
        trusted = Trust.parse(now[2:])
        end = len(records)
        if before:
            end = next((at for at, record in enumerate(records) if _digest(record) == before), -1)
        if end < 0:  # it has left for the transcript since
            place = await self._find(session, before)
            return await self._read_transcript(session, place, limit) if place else TranscriptPage()
        begin = max(0, end - limit)
        older = f"{newest[0][0].decode()}." if newest else ""
        return TranscriptPage(tuple(records[begin:end]), _digest(records[begin]) if begin else older, trusted)

    async def find_person(self, session: str) -> str:
        """Return the id of the only person whose messages are kept of this chat; `""` for several
        or none. Raises RedisAway."""
        found = set[str]()
        before = ""
        while len(found) < 2:
            page = await self.read_back(session, before, limit=_PERSON_ENTRIES)
            found |= set(map(_sender_of, page.records)) - _NOBODY
            if not (before := page.before):
                break
        return found.pop() if len(found) == 1 else ""

    async def _read_transcript(self, session: str, before: str, limit: int) -> TranscriptPage:
        """Read at most one page: the entries before `<page>.<index>`, its last ones without an
        index."""
        start, _, index = before.partition(".")
        while True:
            pages, trusted = await self._client.pipeline(
                [
                    ("XREVRANGE", keys.transcript(session), start, "-", "COUNT", 2),
                    ("HMGET", keys.session(session), *TRUST_FIELDS),
                ]
            )
            if not pages:
                return TranscriptPage()
            id = pages[0][0].decode()
            records = unpack_page(pages[0])
            end = int(index) if index and id == start else len(records)
            begin = max(0, end - limit)
            older = pages[1][0].decode() if len(pages) > 1 else ""
            cursor = f"{id}.{begin}" if begin else older and f"{older}."
            if begin < end or not cursor:
                return TranscriptPage(tuple(records[begin:end]), cursor, Trust.parse(trusted))
            start = older
            index = ""

    async def _find(self, session: str, digest: str) -> str:
        """Return the place in the transcript of a record that was in the conversation a moment
        ago."""
        start = "+"
        for _ in range(_FIND_PAGES):
            page = await self._client.command("XREVRANGE", keys.transcript(session), start, "-", "COUNT", 1)
            if not page:
                break
            id = page[0][0].decode()
            records = unpack_page(page[0])
            for at in reversed(range(len(records))):
                if _digest(records[at]) == digest:
                    return f"{id}.{at}"
            start = f"({id}"
        return ""


def pack_pages(records: Iterable[bytes]) -> list[bytes]:
    """Compress records, oldest first, into pages."""
    return [zlib.compress(msgspec.msgpack.encode(page)) for page in _split(records)]


def unpack_page(page: Sequence[Any]) -> list[bytes]:
    """Return the records of a page as the stream has it; none for one that cannot be read."""
    try:
        unpacked = zlib.decompressobj().decompress(page[1][1], PAGE_LIMIT_BYTES)
        return _records.decode(unpacked)
    except (zlib.error, msgspec.MsgspecError, IndexError):
        return []


def _sender_of(record: bytes) -> str:
    try:
        return _decode_sender(record).sender_id
    except msgspec.MsgspecError:
        return ""


def _split(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    page = list[bytes]()
    size = 0
    for record in records:
        if page and size + len(record) > PAGE_BYTES:
            yield page
            page = []
            size = 0
        page.append(record)
        size += len(record)
    if page:
        yield page


def _digest(record: bytes) -> str:
    return "@" + hashlib.sha1(record, usedforsecurity=False).hexdigest()[:16]
