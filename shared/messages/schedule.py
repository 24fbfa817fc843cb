"""Schedules of a chat: texts that the agent gets at given times, in messages."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from shared.ids import session_id
from shared.messages.codec import Decoder
from shared.messages.inbound import TIMEZONE, InboundMessage

SENDER: Final = "cron"
HEARTBEAT: Final = "heartbeat"  # id of a chat's heartbeat; a chat has at most one
BACKGROUND: Final = "background"

Misfire = Literal["skip", "once", "all"]
"""Rule for ticks that were missed: none is made up for, one run stands for all, or each is run."""


class AtPlan(msgspec.Struct, frozen=True, tag_field="t", tag="at"):
    """A plan with one tick, at a time in ms since 1970."""

    at_ms: int


class EveryPlan(msgspec.Struct, frozen=True, tag_field="t", tag="every"):
    """A plan with a tick every `every_ms`, counted from `from_ms`, whatever local clocks do."""

    every_ms: int
    from_ms: int


class CronPlan(msgspec.Struct, frozen=True, tag_field="t", tag="cron"):
    """A plan with five cron fields, by the clock of `timezone` (an IANA name)."""

    expression: str
    timezone: str


Plan = AtPlan | EveryPlan | CronPlan


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="schedule"):
    """A plan and its text, bound to the chat that created it. Times are shown there in `timezone`;
    `owner` asked for it. A `heartbeat` reads HEARTBEAT.md first, and has no text of its own.
    `traceparent` is W3C trace context: the turn that created it. `sources` marked that turn, and
    mark each run."""

    id: str
    channel: str
    chat_id: str
    owner: str
    text: str
    plan: Plan
    misfire: Misfire = "skip"
    timezone: str = "UTC"
    created_at: int = 0
    thread: str | None = None
    v: int = 1
    traceparent: str | None = None
    sources: tuple[str, ...] = ()

    @property
    def session(self) -> str:
        """The session of its chat."""
        return session_id(self.channel, self.chat_id if self.thread is None else f"{self.chat_id}#{self.thread}")

    @property
    def heartbeat(self) -> bool:
        return self.id == HEARTBEAT


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and its state. `next_ms` is its next tick, `last_ms` the last one that ran
    (None = none yet); `paused` while its chat cannot be reached."""

    schedule: Schedule
    next_ms: int
    runs: int = 0
    missed: int = 0
    last_ms: int | None = None
    paused: bool = False


decode_schedule: Decoder[Schedule] = Decoder(Schedule)


def tick_message(
    schedule: Schedule, tick_ms: int, *, now_ms: int, late: bool, text: str, traceparent: str | None = None
) -> InboundMessage:
    """Build the message for a tick: `text`, and a note that no person wrote it just now. Its id is
    made of schedule and tick, so that it stays one message however often it is sent."""
    due = local_time(tick_ms, schedule.timezone)
    what = "The heartbeat of this chat" if schedule.heartbeat else f"Schedule {schedule.id} of this chat"
    note = f"{what} was due at {due}, and runs only now" if late else f"{what} runs now, at {due}"
    # The heartbeat is nobody's plan: it has the zone of the settings.
    zone = {} if schedule.heartbeat else {TIMEZONE: schedule.timezone}
    return InboundMessage(
        channel=schedule.channel,
        chat_id=schedule.chat_id,
        sender_id=SENDER,
        id=f"{schedule.id}:{tick_ms}",
        content=f"[{note}. Nobody has written just now: do the following, and say here what came of it.]\n\n{text}",
        timestamp=now_ms,
        metadata={"schedule": schedule.id, "tick": str(tick_ms), BACKGROUND: "1", **zone},
        thread=schedule.thread,
        traceparent=traceparent,
        sources=schedule.sources,
    )


def is_tick(id: str) -> bool:
    """Tell whether a schedule sent the message. Clients cannot use an id with a colon."""
    schedule, colon, tick = id.partition(":")
    return bool(schedule and colon) and tick.isdecimal()


def is_background(message: InboundMessage) -> bool:
    """Tell whether no person waits for the answer. This is the only place that decides it."""
    return message.metadata.get(BACKGROUND) == "1"


def local_time(at_ms: int, timezone: str) -> str:
    """Format a time: `2026-11-21 09:00 (Saturday, Europe/Berlin)`."""
    when = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(timezone))
    return f"{when:%Y-%m-%d %H:%M (%A}, {timezone})"


def describe_plan(schedule: Schedule) -> str:
    """Describe a plan: `every 30 min`, `at 30 8 * * 1-5 (Europe/Berlin)`."""
    match schedule.plan:
        case AtPlan(at_ms=at_ms):
            return f"once, at {local_time(at_ms, schedule.timezone)}"
        case EveryPlan(every_ms=every_ms):
            seconds = every_ms / 1000
            for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
                if seconds >= size and seconds % size == 0:
                    return f"every {seconds / size:g} {unit}"
            return f"every {seconds:g} s"
        case CronPlan(expression=expression, timezone=timezone):
            return f"at {expression!r} ({timezone})"
