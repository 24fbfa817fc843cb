"""The audit record: refusals, admissions, approvals and commands, without texts of messages."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.errors import RedisAway, Refused
from shared.ids import log_id, split_session
from shared.log import logger
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, Value, pairs, server_ms

LINES: Final = 10_000
KEEP_MS: Final = 90 * 86_400_000
FIELD_CHARS: Final = 200
CONSOLE: Final = "console"  # actor of what an operator types at `shoal`
AGENT: Final = "agent"  # actor of what a turn does
log = logger("audit")


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the audit record. `kind` is `access`, `pairing`, `approval`, `message` or
    `exec`; `outcome` is one of a few words. `actor` is `channel:sender id`, CONSOLE or AGENT;
    `session` is the hash that stands for it in logs; `about` is the person or thing concerned, such
    as a hash of arguments. `id` is the entry's place in the record, `at_ms` the server's time."""

    id: str
    at_ms: int
    kind: str = ""
    outcome: str = ""
    actor: str = ""
    channel: str = ""
    session: str = ""
    turn: int = 0
    about: str = ""


class Audit:
    """Writes and reads the last 10,000 lines of 90 days. Without a client it drops every line."""

    def __init__(self, client: RedisClient | None, *, lines: int = LINES, keep_ms: int = KEEP_MS) -> None:
        self._client = client
        self._kept = lines, keep_ms

    async def record(
        self, kind: str, outcome: str, *, actor: str = AGENT, session: str = "", turn: int = 0, about: str = ""
    ) -> None:
        """Add a line if Redis accepts it; otherwise log a warning."""
        if self._client is None:
            return
        fields = line_fields(kind, outcome, actor=actor, session=session, turn=turn, about=about)
        log_line(fields)
        try:
            lines, keep_ms = self._kept
            packed = pack(fields)
            await self._client.run("access/audit", lines=lines, keep_ms=keep_ms, fields=packed)
        # An action is never refused because its audit line could not be written.
        except (RedisAway, Refused) as exc:
            error = type(exc).__name__
            log.warning("audit line not kept", kind=kind, outcome=outcome, turn=turn, error=error)

    async def newest(self, limit: int) -> list[AuditLine]:
        """Return up to `limit` lines, the newest first. Raises RedisAway."""
        assert self._client is not None
        lines, keep_ms = self._kept
        newest = await self._client.command("XREVRANGE", keys.AUDIT, "+", "-", "COUNT", min(limit, lines))
        oldest_ms = server_ms(await self._client.command("TIME")) - keep_ms
        rows = ((id, fields) for id, fields in newest if int(id.partition(b"-")[0]) >= oldest_ms)
        return [_line(id.decode(), fields) for id, fields in rows]


NO_TRAIL: Final = Audit(None)  # audit of tools that run without a store


def actor_of(channel: str, sender: str) -> str:
    """Return the actor that stands for a person in a channel."""
    return f"{channel}:{sender}"


def line_fields(
    kind: str, outcome: str, *, actor: str, session: str = "", turn: int = 0, about: str = ""
) -> list[Value]:
    """Return names and values of a line as the stream holds them; empty values are left out."""
    named = {
        "kind": kind,
        "outcome": outcome,
        "actor": actor,
        "channel": split_session(session)[0] if session else "",
        "session": log_id(session) if session else "",
        "turn": str(turn) if turn else "",
        "about": about,
    }
    return [part for name, value in named.items() if value for part in (name, value[:FIELD_CHARS])]


def log_line(fields: list[Value]) -> None:
    """Copy a line into the log of this process: no user of Redis can change that. The console has
    no log; its output is for the operator."""
    line = {str(name): value for name, value in pairs(fields)}
    if line.get("actor") == CONSOLE:
        return
    # Ids of people are not in the log either: the hash that stands for each is the same everywhere.
    for name in ("actor", "about"):
        if ":" in (id := str(line.get(name, ""))):
            line[name] = log_id(id)
    log.info("audit", **line)


def _line(id: str, fields: list[bytes]) -> AuditLine:
    """Parse one entry of the stream. A newer version may store more fields, an older one fewer."""
    values = {name.decode(): value.decode(errors="replace") for name, value in pairs(fields)}
    turn = values.pop("turn", "")
    known = values | {"id": id, "at_ms": id.partition("-")[0]}
    turn_of = {"turn": turn} if turn.isdecimal() else {}
    return msgspec.convert(known | turn_of, AuditLine, strict=False)
