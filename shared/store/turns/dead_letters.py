"""Messages that were given up, and lines that a platform did not take, to put back or drop. The
scripts write them (`commit.lua`, and `dead_letter_lines` in `lib/lines.lua`): about 10,000 at most;
what is older than 30 days goes when one comes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadRecord
from shared.ids import split_session
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.outbound import UserLine
from shared.store import keys
from shared.store.client.redis_client import RedisClient, pairs
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits

PAGE: Final = 50
LOGGED_CHANNELS: Final = frozenset({"web"})
"""Channels that show a person's own messages from the log, and list the person's chats."""

_STREAM_ID = re.compile(r"\d{1,20}-\d{1,20}")


class DeadLetterEntry(msgspec.Struct, frozen=True):
    """A dead letter without its record. `id` is its place in the stream, `turn` its number in the
    session. `reference` is the code that the apology showed; a letter without one uses its id. With
    `undelivered` it is a line for the chat, `turn` is the line's number, `why` the platform's
    reason, and `unsure` counts how often it may have been delivered all the same. Of a message
    `why` is what the model's provider said."""

    id: str
    reference: str
    reason: str
    session: str
    turn: int
    size_bytes: int
    undelivered: bool = False
    why: str = ""
    unsure: int = 0

    @property
    def at_ms(self) -> int:
        """Server time at which it was given up."""
        return int(self.id.partition("-")[0])

    @property
    def channel(self) -> str:
        return split_session(self.session)[0]

    @property
    def chat_id(self) -> str:
        return split_session(self.session)[1]


class DeadLetters:
    """Reads, replays and drops dead letters, a page at a time. Replayed messages go to `inbox`;
    `limits` decide how long a line is kept."""

    def __init__(
        self, client: RedisClient, inbox: Inbox, clock: Clock = SYSTEM_CLOCK, *, limits: InboxLimits | None = None
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._clock = clock
        self._limits = limits or InboxLimits()

    async def count(self) -> int:
        """Count all dead letters."""
        found: int = await self._client.command("XLEN", keys.DEAD)
        return found

    async def newest(self, *, before: str = "", limit: int = PAGE) -> list[DeadLetterEntry]:
        """Return up to `limit` letters, newest first; with `before` only older ones than that."""
        return await self._read("XREVRANGE", f"({before}" if before else "+", "-", limit)

    async def all(self) -> AsyncIterator[DeadLetterEntry]:
        """Yield every letter that exists now, oldest first; later ones are left out."""
        last = await self.newest(limit=1)
        page = await self._read("XRANGE", "-", last[0].id, PAGE) if last else []
        while page:
            for letter in page:
                yield letter
            page = await self._read("XRANGE", f"({page[-1].id}", last[0].id, PAGE)

    async def find(self, reference: str) -> DeadLetterEntry | None:
        """Find the letter with this reference or id."""
        wanted = reference.strip().lower()
        if _STREAM_ID.fullmatch(wanted):
            page = await self._read("XRANGE", wanted, wanted, 1)
            return page[0] if page else None
        # Newest first: a reference that somebody quotes is most likely of today.
        page = await self.newest()
        while page:
            for letter in page:
                if letter.reference == wanted:
                    return letter
            page = await self.newest(before=page[-1].id)
        return None

    async def read_record(self, letter: DeadLetterEntry) -> bytes | None:
        """Read the raw record; None when the letter is gone."""
        rows = await self._client.command("XRANGE", keys.DEAD, letter.id, letter.id)
        if not rows:
            return None
        record: bytes = dict(pairs(rows[0][1])).get(b"m", b"")
        return record

    async def replay(self, letter: DeadLetterEntry) -> Accepted | None:
        """Put the message back as a new one at the tail of its session, then drop the letter; None
        when it is gone. An undelivered line goes to the end of the chat's outbox, in the same step.
        The new id is derived from the reference, so a repeated replay that died before the drop
        makes no second turn (within the days for which ids are stored). Raises BadRecord when the
        record cannot be read, BadInput for what only Shoal itself may send, Refused when the inbox
        is full, RedisAway."""
        if letter.undelivered:
            return await self._deliver_again(letter)
        record = await self.read_record(letter)
        if record is None:
            return None
        message = self.message_of(letter, record)
        # A new time, too: the age of the old one would count as time in which no model could be
        # reached.
        again = msgspec.structs.replace(message, id=f"replay-{letter.reference}", timestamp=self._clock.now_ms())
        logged = message.channel in LOGGED_CHANNELS
        accepted = await self._inbox.ingest(
            again,
            log_line=UserLine(id=again.id, text=again.content, at=again.timestamp) if logged else None,
            principal=again.sender_id if logged else None,
            internal=True,
        )
        # Only now: dying in between leaves the letter, and a second replay finds the same id.
        await self.drop(letter)
        return accepted

    async def _deliver_again(self, letter: DeadLetterEntry) -> Accepted | None:
        session = letter.session
        limits = self._limits
        seq = await self._client.run(
            "letters/replay",
            session=session,
            id=letter.id,
            keep_line_ms=limits.log_ms,
            keep_session_ms=limits.session_ms,
        )
        return Accepted(turn=0, ahead=0, seq=seq, duplicate=False) if seq else None

    async def drop(self, letter: DeadLetterEntry) -> bool:
        """Delete a letter; return whether it still existed."""
        return bool(await self._client.command("XDEL", keys.DEAD, letter.id))

    @staticmethod
    def message_of(letter: DeadLetterEntry, record: bytes) -> InboundMessage:
        """Decode the message of a letter. Raises BadRecord, also for one of another session."""
        message = decode_inbound(record)
        if message.session != letter.session:
            raise BadRecord("record_misplaced", "its record is a message of another session")
        return message

    async def _read(self, command: str, start: str, end: str, limit: int) -> list[DeadLetterEntry]:
        rows = await self._client.run("letters/page", command=command, first=start, last=end, most=limit)
        return [_letter(row) for row in rows]


def _letter(row: list[Any]) -> DeadLetterEntry:
    id, member, n, reason = (part.decode(errors="replace") for part in row[:4])
    why, _, reference = reason.rpartition(" ")
    if not why:
        why = reason
        reference = id
    undelivered = member.startswith(keys.OUT_PREFIX)
    session = member.removeprefix(keys.OUT_PREFIX if undelivered else keys.TURN_PREFIX)
    by_platform = undelivered, row[5].decode(errors="replace"), int(row[6])
    return DeadLetterEntry(id, reference, why, session, int(n), row[4], *by_platform)
