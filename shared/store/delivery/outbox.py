"""The log of a chat: its lines by number, for readers who were not connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shared.errors import BadRecord
from shared.messages.outbound import LogLine, OutboundMessage, decode_line
from shared.store import keys
from shared.store.client.redis_client import RedisClient


class NumberedLine(msgspec.Struct, frozen=True):
    """A line and its number in the chat, counted from 1."""

    seq: int
    line: LogLine


class LogPosition(msgspec.Struct, frozen=True):
    """The number of the newest line, and of the turn at the head of the inbox (None = nothing
    runs or waits)."""

    last_seq: int
    running: int | None


class ChatInfo(msgspec.Struct, frozen=True):
    """A row of a person's list of chats; `at` is the last activity in ms."""

    chat_id: str
    title: str
    at: int
    running: bool


class Outbox:
    """Reader of the logs of chats that keep one (web chat). The ingest and commit scripts write
    them."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def read_after(self, session: str, *, after: int, limit: int = 500) -> list[NumberedLine]:
        """Return lines with a number above `after`, oldest first."""
        rows = await self._client.command("XRANGE", keys.outbox(session), f"({after}-0", "+", "COUNT", limit)
        return _lines(rows)

    async def read_before(self, session: str, *, seq: int | None, limit: int) -> list[NumberedLine]:
        """Return the newest `limit` lines with a number below `seq` (None = the newest of all),
        oldest first."""
        top = "+" if seq is None else f"({seq}-0"
        # From the newest backwards; the result is turned around for the reader.
        rows = await self._client.command("XREVRANGE", keys.outbox(session), top, "-", "COUNT", limit)
        return _lines(rows)[::-1]

    async def position(self, session: str) -> LogPosition:
        """Return how far the chat is."""
        last, head = await self._client.pipeline(
            [
                ("HGET", keys.session(session), "log"),
                ("XRANGE", keys.inbox(session), "-", "+", "COUNT", 1),
            ]
        )
        return LogPosition(int(last or 0), int(head[0][0].split(b"-")[0]) if head else None)

    async def ack(self, session: str, seq: int) -> None:
        """Store that a person saw the lines up to `seq`; seen lines may be trimmed earlier."""
        await self._client.run("delivery/ack", [keys.session(session)], [seq])

    async def chats(
        self, channel: str, principal: str, session_of: Callable[[str], str], limit: int = 200
    ) -> list[ChatInfo]:
        """Return the person's chats, the latest first. `session_of` maps a chat id to its
        session."""
        rows = await self._client.command("ZREVRANGE", keys.chats(channel, principal), 0, limit - 1, "WITHSCORES")
        chat_ids = [row.decode() for row in rows[::2]]
        if not chat_ids:
            return []
        commands: list[tuple[str, ...]] = []
        for chat_id in chat_ids:
            commands.append(("HGET", keys.session(session_of(chat_id)), "title"))
            commands.append(("EXISTS", keys.inbox(session_of(chat_id))))
        answers = await self._client.pipeline(commands)
        return [
            ChatInfo(chat_id, (answers[2 * i] or b"").decode(), int(float(rows[2 * i + 1])), bool(answers[2 * i + 1]))
            for i, chat_id in enumerate(chat_ids)
        ]


def _lines(rows: list[Any]) -> list[NumberedLine]:
    return [NumberedLine(int(row[0].split(b"-")[0]), read_line(row[1][1])) for row in rows]


def read_line(data: bytes) -> LogLine:
    """Decode a line of the log. A line that a newer version wrote becomes a notice, so that the
    chat still opens."""
    try:
        return decode_line(data)
    except BadRecord:
        return OutboundMessage(content="(a line that this version of Shoal cannot show)", turn=0, kind="notice")


class OutboxReading(msgspec.Struct, frozen=True):
    """Backlog of one channel: chats with an undelivered line, and the age of the oldest such
    line."""

    channel: str
    waiting: int
    oldest_s: float


async def read_outboxes(client: RedisClient) -> list[OutboxReading]:
    """Read the backlog of every delivered channel that had a line within the last weeks. Raises
    RedisAway."""
    (seconds, micros), known = await client.pipeline([("TIME",), ("ZRANGE", keys.OUTBOXES, 0, -1)])
    if not known:
        return []
    channels = [name.decode() for name in known]
    answers = await client.pipeline(
        [
            question
            for channel in channels
            for question in (
                ("ZCARD", keys.outwaits(channel)),
                ("ZRANGE", keys.outwaits(channel), 0, 0, "WITHSCORES"),
            )
        ]
    )
    now = int(seconds) * 1000 + int(micros) // 1000
    return [
        OutboxReading(channel, answers[2 * at], _age_s(now, answers[2 * at + 1])) for at, channel in enumerate(channels)
    ]


def _age_s(now_ms: int, oldest: list[bytes]) -> float:
    return max(0.0, (now_ms - float(oldest[1])) / 1000) if oldest else 0.0
