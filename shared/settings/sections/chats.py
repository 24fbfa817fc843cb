"""Settings of messages that come in, `[inbox]`, and of schedules, `[cron]` and `[heartbeat]`. A
channel may have its own `busy` and `sender_per_minute` in its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, cast, get_args

from msgspec import Meta, Struct

from shared.settings.sections.kinds import Count, Seconds

Busy = Literal["queue", "steer", "merge", "interrupt", "reject"]
"""Policies for a message that arrives while a turn runs: answer it in a turn of its own; let it
join the running turn; make one turn of a burst; end the running turn; refuse it."""
POLICIES: Final[tuple[Busy, ...]] = get_args(Busy)
BUSY_KEY: Final = "busy"  # key that every channel's table may have
SENDER_KEY: Final = "sender_per_minute"
"""Key that every channel's table may have, a limit in addition to `inbox.sender_per_minute`."""
SENDER_LIMIT: Final = 60_000


class InboxSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on waiting messages: `cap` in one session, `sessions_cap` sessions; more are refused.
    One sender may write `sender_per_minute` messages, all at once or spread (0: no limit).
    `bot_turns` messages of bots within `bot_window_s`, with no person's message between them, pause
    the chat for bots (0: never). `busy` is the policy for a message that arrives while a turn runs;
    a channel may have its own (`channels.<name>.busy`), and a chat (`/busy`). A burst is waited for
    `merge_s`. A person may write in `chats_per_person` chats of the page within 30 days, and in
    `api_sessions_per_person` named sessions over HTTP (0: no limit); a further one is refused."""

    cap: Annotated[int, Meta(ge=1, le=1000)] = 50
    sessions_cap: Count = 100_000
    sender_per_minute: Annotated[int, Meta(ge=0, le=60_000)] = 60
    bot_turns: Annotated[int, Meta(ge=0, le=1000)] = 20
    bot_window_s: Seconds = 300.0
    busy: Busy = "queue"
    merge_s: Annotated[float, Meta(ge=0, le=60)] = 2.0
    chats_per_person: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    api_sessions_per_person: Annotated[int, Meta(ge=0, le=100_000)] = 10_000


class CronSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of schedules: `per_chat` in one chat, `in_all` in the fleet, at most one tick every
    `min_every_s`. At most `waiting` ticks of one chat wait for their answers. A tick that is more
    than `late_s` late counts as missed. Missed ticks are made up spread over `spread_s`, so that an
    outage does not end in a storm, at most the newest `catch_up` of a schedule."""

    on: bool = True
    per_chat: Annotated[int, Meta(ge=1, le=200)] = 20
    in_all: Annotated[int, Meta(ge=1)] = 100_000
    min_every_s: Annotated[float, Meta(ge=0.1, le=86400)] = 60.0
    waiting: Annotated[int, Meta(ge=1, le=50)] = 5
    late_s: Annotated[float, Meta(gt=0, le=86400)] = 60.0
    spread_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    catch_up: Annotated[int, Meta(ge=1, le=100)] = 10


class HeartbeatSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Minutes between two looks of a chat's agent into its own HEARTBEAT.md; 0: never."""

    every_min: Annotated[float, Meta(ge=0, le=7 * 24 * 60)] = 0.0


def busy_by_channel(channels: Mapping[str, Mapping[str, Any]]) -> dict[str, Busy]:
    """Return `channels.<name>.busy` of the channels that have one."""
    own = {name: table[BUSY_KEY] for name, table in channels.items() if BUSY_KEY in table}
    return {name: cast(Busy, str(policy)) for name, policy in own.items()}


def busy_problems(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each channel with an unknown policy."""
    for name, word in busy_by_channel(channels).items():
        if word not in POLICIES:
            known = ", ".join(map(repr, POLICIES))
            yield f"channels.{name}.{BUSY_KEY} must be one of {known}, not {str(word)!r}"


def senders_by_channel(channels: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return `channels.<name>.sender_per_minute` of the channels that have one."""
    limits = {name: _parse_limit(table.get(SENDER_KEY)) for name, table in channels.items()}
    return {name: limit for name, limit in limits.items() if limit is not None}


def senders_problems(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each channel with an invalid number."""
    for name, table in channels.items():
        if SENDER_KEY in table and _parse_limit(table[SENDER_KEY]) is None:
            key = f"channels.{name}.{SENDER_KEY}"
            raw = str(table[SENDER_KEY])
            yield f"{key} must be a whole number from 0 to {SENDER_LIMIT}, not {raw!r}"


def _parse_limit(raw: object) -> int | None:
    """Return the number; None when it is none or out of range. In the environment it is text."""
    if isinstance(raw, str) and raw.isascii() and raw.isdecimal():
        raw = int(raw)
    return raw if type(raw) is int and 0 <= raw <= SENDER_LIMIT else None
