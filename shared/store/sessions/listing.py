"""Lists of all sessions, the latest first, for operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from shared.clock import SYSTEM_CLOCK
from shared.ids import log_id, split_session
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.sessions.details import FIELDS, SessionDetails, parse_details
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits

SCAN_KEYS: Final = 2_000_000
"""Keys that are scanned at most; a larger store is not searched to its end."""

SCAN_COUNT: Final = 2000
BATCH: Final = 200
_PREFIX: Final = keys.session("")


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list. `idle_s` is the time since its last message or answer, if known."""

    session: str
    channel: str
    messages: int
    waiting: int
    running: bool
    preset: str
    entries: int
    idle_s: float | None
    details: SessionDetails = SessionDetails()
    title: str = ""
    """What its person called it, else the first words written in it; web chats only."""


class SessionPage(msgspec.Struct, frozen=True):
    """The latest of all matching sessions. `whole` is False when not all keys were scanned."""

    rows: tuple[SessionRow, ...]
    total: int
    whole: bool


async def list_sessions(
    client: RedisClient,
    *,
    match: str = "",
    limit: int = 100,
    limits: InboxLimits | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> SessionPage:
    """Return the `limit` latest sessions whose name contains `match`, or whose hash in the logs
    begins with it. `on_progress` gets the number of scanned keys and of all. Raises RedisAway."""
    names, whole = await session_names(client, match=match, on_progress=on_progress)
    keep_ms = (limits or InboxLimits()).session_days * DAY_MS
    known = await _ask_all(client, names, _age_questions)
    latest = sorted((_idle_ms(known[at], keep_ms), name, at) for at, name in enumerate(names))[:limit]
    replies = await _ask_all(client, [name for _, name, _ in latest], _questions)
    rows = tuple(
        _row(name, idle_ms, keep_ms, answers) for (idle_ms, name, _), answers in zip(latest, replies, strict=True)
    )
    return SessionPage(rows, len(names), whole)


async def session_names(
    client: RedisClient, *, match: str = "", on_progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[str], bool]:
    """Return all matching names, in arbitrary order, and whether all keys were scanned."""
    total = int(await client.command("DBSIZE"))
    done = 0
    names: dict[str, None] = {}
    async for found in client.scan("SCAN", match=f"{_PREFIX}*", count=SCAN_COUNT):
        if done >= SCAN_KEYS:
            return list(names), False
        for key in found:
            name = key.decode(errors="replace").removeprefix(_PREFIX)
            if match in name or match in unquote(name) or log_id(name).startswith(match):
                names[name] = None
        done += SCAN_COUNT
        on_progress(min(done, total), total)
    on_progress(total, total)
    return list(names), True


async def row_of(client: RedisClient, session: str, *, limits: InboxLimits | None = None) -> SessionRow:
    """Read one session as `list_sessions` returns it. Raises RedisAway."""
    keep_ms = (limits or InboxLimits()).session_days * DAY_MS
    left_ms, updated, *replies = await client.pipeline([*_age_questions(session), *_questions(session)])
    return _row(session, _idle_ms((left_ms, updated), keep_ms), keep_ms, replies)


def _age_questions(name: str) -> list[tuple[Value, ...]]:
    return [("PTTL", keys.session(name)), ("HGET", keys.session(name), "updated")]


def _idle_ms(answers: Sequence[Any], keep_ms: int) -> int:
    """Return the time since the last message or answer. For a session of an older release it is the
    part of its time to live that is over, which begins anew now and then."""
    left_ms, updated = answers
    return max(0, SYSTEM_CLOCK.now_ms() - int(updated)) if updated else keep_ms - int(left_ms)


def _questions(name: str) -> list[tuple[Value, ...]]:
    return [
        ("HMGET", keys.session(name), "n", "preset", "title", *FIELDS),
        ("XLEN", keys.inbox(name)),
        ("HEXISTS", keys.leases(TURNS), keys.turn(name)),
        ("LLEN", keys.history(name)),
    ]


def _row(name: str, idle_ms: int, keep_ms: int, answers: Sequence[Any]) -> SessionRow:
    (counter, preset, title, *details), waiting, running, entries = answers
    return SessionRow(
        session=name,
        channel=split_session(name)[0],
        messages=int(counter or 0),
        waiting=waiting,
        running=running == 1,
        preset=(preset or b"").decode(),
        entries=entries,
        idle_s=idle_ms / 1000 if 0 <= idle_ms <= keep_ms else None,
        details=parse_details(*details),
        title=(title or b"").decode(errors="replace"),
    )


async def _ask_all(
    client: RedisClient, names: Sequence[str], questions: Callable[[str], list[tuple[Value, ...]]]
) -> list[list[Any]]:
    """Return the replies to the commands about each name, asked in batches."""
    answers: list[list[Any]] = []
    for at in range(0, len(names), BATCH):
        asked = [questions(name) for name in names[at : at + BATCH]]
        replies = iter(await client.pipeline([question for one in asked for question in one]))
        answers.extend([next(replies) for _ in one] for one in asked)
    return answers
