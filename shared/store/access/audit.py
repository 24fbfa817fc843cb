"""The audit record: who was refused, let in, asked and answered, and what was run. Without texts of
messages."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from shared.errors import RedisAway, Refused
from shared.ids import log_id, split_session
from shared.log import logger
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import load

LINES: Final = 10_000
KEEP_MS: Final = 90 * 86_400_000
FIELD_CHARS: Final = 200
CONSOLE: Final = "console"
"""The actor of what is typed at `shoal`."""

AGENT: Final = "agent"
"""The actor of what a turn does."""

log = logger("audit")


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `kind` is `access`, `pairing`, `approval`, `message` or `exec`,
    `outcome` a word of few.

    `actor` is `channel:sender id`, CONSOLE or AGENT; `session` the hash that stands for it in logs;
    `about` whom or what it concerns, such as the hash of arguments. `id` is its place in the
    record, `at_ms` the server's time.
    """

    id: str
    at_ms: int
    kind: str
    outcome: str = ""
    actor: str = ""
    channel: str = ""
    session: str = ""
    turn: int = 0
    about: str = ""


class AuditSink(Protocol):
    """Whoever takes lines of the record."""

    async def record(
        self, kind: str, outcome: str, *, actor: str = AGENT, session: str = "", turn: int = 0, about: str = ""
    ) -> None:
        """Leave a line. Never raises what a store has."""
        ...


class NoTrail:
    """Keeps nothing: for tools that run where no store is."""

    async def record(
        self, kind: str, outcome: str, *, actor: str = AGENT, session: str = "", turn: int = 0, about: str = ""
    ) -> None:
        return


NO_TRAIL: Final = NoTrail()


class Audit:
    """Writes and reads the record: the last 10,000 lines of 90 days."""

    def __init__(self, client: RedisClient, *, lines: int = LINES, keep_ms: int = KEEP_MS) -> None:
        self._client = client
        self._kept: list[Value] = [lines, keep_ms]
        self._script = load("access/audit")

    async def record(
        self, kind: str, outcome: str, *, actor: str = AGENT, session: str = "", turn: int = 0, about: str = ""
    ) -> None:
        """Leave a line, as far as Redis takes it; if not, the log says so."""
        fields = line_fields(kind, outcome, actor=actor, session=session, turn=turn, about=about)
        try:
            await self._client.run(self._script, [], [*self._kept, *fields])
        except (RedisAway, Refused) as exc:
            log.warning("audit line not kept", kind=kind, outcome=outcome, turn=turn, error=type(exc).__name__)

    async def newest(self, limit: int) -> list[AuditLine]:
        """Up to `limit` lines, the newest first. Raises RedisAway."""
        rows = await self._client.command("XREVRANGE", keys.AUDIT, "+", "-", "COUNT", limit)
        return [_line(id.decode(), fields) for id, fields in rows]


def actor_of(channel: str, sender: str) -> str:
    """The actor that a person in a channel is."""
    return f"{channel}:{sender}"


def line_fields(
    kind: str, outcome: str, *, actor: str, session: str = "", turn: int = 0, about: str = ""
) -> list[Value]:
    """Names and values of a line, as the stream holds them; what is empty is left out."""
    channel = split_session(session)[0] if session else ""
    named = {
        "kind": kind,
        "outcome": outcome,
        "actor": actor,
        "channel": channel,
        "session": log_id(session) if session else "",
        "turn": str(turn) if turn else "",
        "about": about,
    }
    return [part for name, value in named.items() if value for part in (name, value[:FIELD_CHARS])]


def _line(id: str, fields: list[bytes]) -> AuditLine:
    """A line of another release may say more, or less."""
    told = {
        name.decode(): value.decode(errors="replace") for name, value in zip(fields[::2], fields[1::2], strict=True)
    }
    turn = told.get("turn", "")
    return AuditLine(
        id=id,
        at_ms=int(id.partition("-")[0]),
        kind=told.get("kind", ""),
        outcome=told.get("outcome", ""),
        actor=told.get("actor", ""),
        channel=told.get("channel", ""),
        session=told.get("session", ""),
        turn=int(turn) if turn.isdecimal() else 0,
        about=told.get("about", ""),
    )
