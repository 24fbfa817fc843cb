"""The oldest lines of a chat's log, in compressed pages next to it, in the form of transcripts. A
worker moves lines here when a log gets long, and readers of the log read on here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.transcripts import PAGE_BYTES, pack_pages, unpack_page

HOT_LINES: Final = 500  # the newest lines, which stay in the log
MOVED_LINES: Final = 500  # moved by one script at most
PAGE_LINES: Final = 100
READ_PAGES: Final = 2
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, bytes]).decode

Row = tuple[int, bytes]
"""A line's number and its record."""


class LogPages:
    """Moves lines of logs to pages, and reads them there. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def page_out(self, session: str, *, cap_bytes: int, keep_ms: int) -> int:
        """Move the lines above HOT_LINES to the pages of the chat, of which at most `cap_bytes` are
        kept, each for at most `keep_ms`. Return how many lines were moved."""
        log = keys.outbox(session)
        moved = 0
        while (surplus := await self._client.command("XLEN", log) - HOT_LINES) > 0:
            many = min(surplus, MOVED_LINES)
            found = await self._client.command("XRANGE", log, "-", "+", "COUNT", many)
            numbers = [int(id.split(b"-")[0]) for id, _ in found]
            lines = zip(numbers, found, strict=True)
            records = [_encode((seq, fields[1])) for seq, (_, fields) in lines]
            new = [word for first, page in _split(numbers, records) for word in (str(first), *pack_pages(page))]
            done = await self._client.run(
                "sessions/page_log",
                session=session,
                first=numbers[0],
                behind=numbers[-1] + 1,
                pages_bytes=cap_bytes,
                keep_pages_ms=keep_ms,
                new=pack(new),
            )
            if not done:
                break  # another worker moved them
            moved += len(found)
        return moved

    async def read_before(self, session: str, seq: int | None, limit: int) -> list[Row]:
        """Return the newest `limit` lines before number `seq` (None: of all) that are in pages,
        oldest first."""
        key = keys.pages(session)
        rows = list[Row]()
        start = "+" if seq is None else f"({seq}-0"
        while len(rows) < limit:
            pages = await self._client.command("XREVRANGE", key, start, "-", "COUNT", READ_PAGES)
            for page in pages:
                rows = [row for row in _read(page) if seq is None or row[0] < seq] + rows
                if len(rows) >= limit:
                    break
            if len(pages) < READ_PAGES:
                break
            start = f"({pages[-1][0].decode()}"
        return rows[-limit:]

    async def read_between(self, session: str, after: int, before: int, limit: int) -> list[Row]:
        """Return the oldest `limit` lines that are in pages, with numbers above `after` and below
        `before`."""
        key = keys.pages(session)
        rows = list[Row]()
        newest = await self._client.command("XREVRANGE", key, f"{after + 1}-0", "-", "COUNT", 1)
        start = newest[0][0].decode() if newest else f"{after + 1}-0"
        while len(rows) < limit:
            end = f"({before}-0"
            pages = await self._client.command("XRANGE", key, start, end, "COUNT", READ_PAGES)
            rows += [row for page in pages for row in _read(page) if after < row[0] < before]
            if len(pages) < READ_PAGES:
                break
            start = f"({pages[-1][0].decode()}"
        return rows[:limit]


def _split(numbers: Sequence[int], records: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of the first line and the records of each page: at most PAGE_LINES lines and
    PAGE_BYTES bytes; a line that is larger has a page of its own."""
    start = size = 0
    for at, record in enumerate(records):
        if at > start and (at - start == PAGE_LINES or size + len(record) > PAGE_BYTES):
            yield numbers[start], list(records[start:at])
            start = at
            size = 0
        size += len(record)
    yield numbers[start], list(records[start:])


def _read(page: Sequence[Any]) -> list[Row]:
    return [_decode(record) for record in unpack_page(page)]
