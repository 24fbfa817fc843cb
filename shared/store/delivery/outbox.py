"""The log of a chat: its lines by number, and the state of its delivery to a platform."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from shared.messages.live import DeltaEvent, decode_deltas
from shared.messages.outbound import LogLine, OutboundMessage, decode_line
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, Value, pairs, server_ms
from shared.store.sessions.log_pages import LogPages, Row

ResendGuard = Literal["key", "look-up", "nothing"]
"""Means to resolve a send with an unknown result: a key by which the platform recognises a
repeated post, a way to ask for it, or nothing."""

_decode_notes: Callable[[bytes], dict[str, str]] = msgspec.msgpack.Decoder(dict[str, str]).decode
_UNREADABLE: Final = "(a line that this version of Shoal cannot show)"


class NumberedLine(msgspec.Struct, frozen=True):
    """A line and its number in the chat, counted from 1. `mark` is a checksum of its record, never
    0. A server that lost the tail of a log uses numbers again; the marks of the lines differ."""

    seq: int
    line: LogLine
    mark: int = 0


class LogPosition(msgspec.Struct, frozen=True):
    """Numbers of the newest line, and of the turn that runs or comes next (None: there is none).
    `mark` is that of the line that was asked for; 0: it is not kept. `shown` is the text of that
    turn that stands on screens."""

    last_seq: int
    running: int | None
    mark: int = 0
    shown: tuple[DeltaEvent, ...] = ()


class Outbox:
    """Reads logs of chats, which the ingest and commit scripts write."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._pages = LogPages(client)

    @property
    def settles(self) -> bool:
        """True when lines may be read that fewer servers have than `redis.copies`."""
        return self._client.copies > 1

    async def settled(self) -> None:
        """Return when enough servers have all lines that were read or published so far."""
        await self._client.settled()

    async def read_after(self, session: str, *, after: int, limit: int = 500) -> list[NumberedLine]:
        """Return lines with a number above `after`, oldest first. With `after` 0 these are the
        lines that are not in pages yet, at least the newest 500."""
        key = keys.outbox(session)
        start = f"({after}-0"
        lines = _lines(await self._client.command("XRANGE", key, start, "+", "COUNT", limit))
        # A reader was away while lines left for the pages.
        if after and lines and lines[0].seq > after + 1:
            older = await self._pages.read_between(session, after, lines[0].seq, limit)
            lines = [*map(_line_of_row, older), *lines][:limit]
        return lines

    async def read_before(self, session: str, *, seq: int | None, limit: int) -> list[NumberedLine]:
        """Return the newest `limit` lines before number `seq` (None = of all), oldest first."""
        key = keys.outbox(session)
        top = "+" if seq is None else f"({seq}-0"
        # From the newest backwards; the result is turned around for the reader.
        lines = _lines(await self._client.command("XREVRANGE", key, top, "-", "COUNT", limit))[::-1]
        if len(lines) < limit and (lines[0].seq if lines else seq) != 1:
            # The log first: a line that leaves it meanwhile is in a page when pages are read.
            before = lines[0].seq if lines else seq
            older = await self._pages.read_before(session, before, limit - len(lines))
            lines = [*map(_line_of_row, older), *lines]
        return lines

    async def position(self, session: str, seq: int = 0) -> LogPosition:
        """Return how far the chat is, and the mark of line `seq` (0: of none)."""
        commands: list[tuple[Value, ...]] = [
            ("HGET", keys.session(session), "log"),
            ("XRANGE", keys.inbox(session), "-", "+", "COUNT", 1),
            ("LRANGE", keys.live(session), 0, -1),
        ]
        if seq:
            commands.append(("XRANGE", keys.outbox(session), f"{seq}-0", f"{seq}-0"))
        last, head, shown, *rows = await self._client.pipeline(commands)
        running = int(head[0][0].split(b"-")[0]) if head else None
        mark = _lines(rows[0])[0].mark if rows and rows[0] else 0
        deltas = [delta for delta in decode_deltas(shown) if delta.turn == running]
        return LogPosition(int(last or 0), running, mark, tuple(deltas))

    async def ack(self, session: str, seq: int) -> None:
        """Store that a person saw the lines up to `seq`; seen lines may be trimmed earlier."""
        await self._client.run("delivery/ack", session=session, seen=seq)


def _lines(rows: list[Any]) -> list[NumberedLine]:
    return [numbered_line(row[0].split(b"-")[0], row[1][1]) for row in rows]


def _line_of_row(row: Row) -> NumberedLine:
    seq, data = row
    return NumberedLine(seq, read_line(data), zlib.crc32(data) or 1)


def numbered_line(seq: bytes, data: bytes) -> NumberedLine:
    """Decode a line of the log with its number. Raises ValueError for what is not a number."""
    return NumberedLine(int(seq), read_line(data), zlib.crc32(data) or 1)


def read_line(data: bytes) -> LogLine:
    """Decode a line of the log; one of a newer version becomes a notice, so that the chat opens."""
    return decode_line.or_none(data) or OutboundMessage(content=_UNREADABLE, turn=0, kind="notice")


class OutboxReading(msgspec.Struct, frozen=True):
    """Backlog of one channel: chats with an undelivered line, and the age of the oldest line."""

    channel: str
    waiting: int
    oldest_s: float


async def read_outboxes(client: RedisClient) -> list[OutboxReading]:
    """Read the backlog of each channel that had a line within the last weeks. Raises RedisAway."""
    time, known = await client.pipeline([("TIME",), ("ZRANGE", keys.OUTBOXES, 0, -1)])
    commands: list[tuple[str | int, ...]] = []
    for name in known:
        waits = keys.outwaits(name.decode(errors="replace"))
        commands += ("ZCARD", waits), ("ZRANGE", waits, 0, 0, "WITHSCORES")
    answers = pairs(await client.pipeline(commands))
    now_ms = server_ms(time)
    rows = []
    for name, (waiting, oldest) in zip(known, answers, strict=True):
        age_s = max(0.0, (now_ms - float(oldest[1])) / 1000) if oldest else 0.0
        rows.append(OutboxReading(name.decode(errors="replace"), waiting, age_s))
    return rows


class RateKey(msgspec.Struct, frozen=True):
    """A rate of calls that all replicas share: `per_s` a second and `burst` at once. A call leaves
    `reserve` calls to others. `name` is unique within the channel, such as `bot`."""

    name: str
    per_s: float
    burst: int
    reserve: int = 0


class PendingLine(NumberedLine, frozen=True):
    """A line that waits for delivery, and its age."""

    age_s: float = 0.0


class DeliveryState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a chat's delivery. `pending` are the oldest waiting lines; the platform has `part`
    posts of the first. `unclear`: another lease was about to send the next post, and may have.
    `streamed_message` is a turn and the message it is streamed into; `pending_stream` the turn and
    key of one that was about to be sent; `shown` a turn and the length of its text that was
    streamed. `running` is the turn that runs or comes next."""

    pending: tuple[PendingLine, ...]
    part: int = 0
    unclear: bool = False
    streamed_message: tuple[int, str] | None = None
    pending_stream: tuple[int, str] | None = None
    shown: tuple[int, int] = (0, 0)
    closed: bool = False
    notes: Mapping[str, str] = {}
    running: int | None = None
    background: bool = False  # true when no person waits for the answer of this turn
    tries: int = 0  # number of times the first line was put off since something of it arrived


class LeasedChat(DeliveryState, frozen=True, kw_only=True):
    """A chat that this process may deliver, as leased. `owner_lost`: the last owner is late or
    dead."""

    session: str
    token: str
    owner_lost: bool = False


class Cleared(msgspec.Struct, frozen=True):
    """The platform may be called now. `unclear`: the same post may already exist."""

    unclear: bool


class Wait(msgspec.Struct, frozen=True):
    """The platform may not be called for `seconds`. Only the lease was renewed."""

    seconds: float


def parse_state(row: list[Any]) -> dict[str, Any]:
    """Parse the state that the scripts return into the fields of DeliveryState."""
    entries, part, unclear, streamed, closed, notes, tries, running, background, pending, shown = row
    shown_turn, _, shown_chars = shown.partition(b" ")
    lines = (PendingLine(int(seq), read_line(line), age_s=int(age) / 1000) for seq, age, line in entries)
    return {
        "pending": tuple(lines),
        "part": part,
        "unclear": unclear == 1,
        "streamed_message": _parse_turn_value(streamed),
        "pending_stream": _parse_turn_value(pending),
        "shown": (int(shown_turn or 0), int(shown_chars or 0)),
        "closed": closed == 1,
        "notes": _decode_notes(notes) if notes else {},
        "tries": int(tries),
        "running": int(running) if running else None,
        "background": background == 1,
    }


def _parse_turn_value(field: bytes) -> tuple[int, str] | None:
    # `<turn> <value>`: the value may contain spaces.
    turn, _, what = field.decode().partition(" ")
    return (int(turn), what) if turn else None


def encode_rates(rates: Sequence[RateKey]) -> bytes:
    """Return argument `rates` of the scripts: of each its name, us between two calls, calls at once
    and calls reserved."""
    rows = [(rate.name, math.ceil(1_000_000 / rate.per_s), max(1, rate.burst), rate.reserve) for rate in rates]
    return pack(rows)
