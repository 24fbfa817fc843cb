"""Notices: turns that ended, or wait for somebody, written by the scripts that make it true. A gateway
makes lines for the endpoints of webhooks of them (`gateway/webhooks/`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.settings.sections.webhooks import HOOK
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, pairs
from shared.store.turns.inbox import DAY_MS

AT_ONCE: Final = 50  # notices that are read together
LINES_AT_ONCE: Final = 100
"""Lines that one call adds, unless one notice is for more endpoints: the server answers nobody else
meanwhile."""

MOST: Final = 100_000
"""Notices that wait, about; `shared/store/lua/lib/lines.lua` has it too. Beyond it the oldest are lost."""

KEEP_MS: Final = 30 * DAY_MS
"""Time for which notices and lines wait while no gateway runs."""


class Notice(msgspec.Struct, frozen=True):
    """Something happened to turn `turn` of a session; line `seq` of its log says it (0: none does).
    `what` is the live event of its end (JSON), `approval <id>`, `calls <ids>`, `withdrawn`, or `kept
    <id>` for a response that was stored after its turn had gone on."""

    id: str
    session: str
    turn: int
    seq: int
    what: str

    @property
    def at_ms(self) -> int:
        """Server time at which it happened."""
        return int(self.id.partition("-")[0])


class NoticeLines(msgspec.Struct, frozen=True):
    """Lines that were made: how many, and how many were not because their endpoint is closed, or
    its keys are broken."""

    added: int
    closed: int
    broken: int

    def __add__(self, other: NoticeLines) -> NoticeLines:
        return NoticeLines(self.added + other.added, self.closed + other.closed, self.broken + other.broken)


class Notices:
    """The notices of the fleet. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def open(self) -> None:
        """Let scripts write notices, from now on and for `KEEP_MS`."""
        if not await self._client.command("PEXPIRE", keys.NOTICES, KEEP_MS):
            # An empty notice makes the stream; it is dropped like others.
            await self._client.command("XADD", keys.NOTICES, "*", "w", "")
            await self._client.command("PEXPIRE", keys.NOTICES, KEEP_MS)

    async def reopen(self, endpoints: Sequence[str]) -> None:
        """Let endpoints that were closed have lines again."""
        await self._client.pipeline([("HDEL", keys.out(session), "closed") for session in endpoints])

    async def oldest(self) -> list[Notice]:
        """Return the oldest notices, at most `AT_ONCE`."""
        rows = await self._client.command("XRANGE", keys.NOTICES, "-", "+", "COUNT", AT_ONCE)
        return [_parse_notice(id, dict(pairs(fields))) for id, fields in rows]

    async def count(self) -> int:
        """Return how many notices wait."""
        return int(await self._client.command("XLEN", keys.NOTICES))

    async def hand_over(self, notices: Sequence[tuple[str, Sequence[tuple[str, bytes]]]]) -> NoticeLines:
        """Drop notices, and add what is given with each: sessions of endpoints, and their lines."""
        done = NoticeLines(0, 0, 0)
        batch: list[list[str | bytes]] = []
        many = 0
        for id, lines in notices:
            if batch and many + len(lines) > LINES_AT_ONCE:
                done += await self._add_lines(batch)
                batch = []
                many = 0
            batch.append([id, *(part for line in lines for part in line)])
            many += len(lines)
        return done + await self._add_lines(batch)

    async def _add_lines(self, batch: Sequence[Sequence[str | bytes]]) -> NoticeLines:
        counts = await self._client.run(
            "delivery/fan_out", notices=pack(batch), keep_line_ms=KEEP_MS, keep_session_ms=KEEP_MS
        )
        return NoticeLines(*counts)


def endpoint_session(name: str) -> str:
    """Return the session whose lines are the webhooks of an endpoint."""
    return f"{HOOK}:{name}"


def _parse_notice(id: bytes, fields: dict[bytes, bytes]) -> Notice:
    session, turn, seq, what = (fields.get(name, b"").decode(errors="replace") for name in (b"s", b"n", b"q", b"w"))
    try:
        notice = Notice(id.decode(), session, int(turn or 0), int(seq or 0), what)
        # No id of a line has another number: the server would refuse to look for it.
        if not 0 <= notice.seq < 2**63:
            raise ValueError(notice.seq)
        return notice
    except ValueError:
        # It is no notice of ours, and is dropped like one that is for nobody.
        return Notice(id.decode(), "", 0, 0, "")
