"""Schedules of chats: stored, listed, and run by any worker, each tick once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import LeaseLost, Refused
from shared.ids import split_session
from shared.messages.codec import PLAIN_VERSION, encode
from shared.messages.inbound import InboundMessage
from shared.messages.schedule import Schedule, ScheduleStatus, decode_schedule
from shared.settings import CronSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient, pairs
from shared.store.schedules.agenda import Agenda, AgendaEntry, score_ms
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits, fair_key
from shared.store.turns.queue import Claim

BATCH: Final = 100
PUT_OFF_MS: Final = 5_000
PAUSED_DAYS: Final = 30  # days after which an unreachable chat loses its schedules


class DueSchedule(msgspec.Struct, frozen=True):
    """A due schedule, as it was read. `tick` is the planned time in ms; `due` is when it came to
    be run, which differs if it was put off. `schedule` is None for an unreadable record."""

    member: str
    due: int
    tick: int
    schedule: Schedule | None

    @property
    def put_off(self) -> bool:
        return self.due != self.tick


class DueSchedules(msgspec.Struct, frozen=True):
    """The schedules due at `now_ms`, the server's time, and ms until the next one (None: none)."""

    now_ms: int
    due: tuple[DueSchedule, ...]
    next_in_ms: int | None


class NextTick(msgspec.Struct, frozen=True, kw_only=True):
    """The move of a schedule after a tick: to the tick `to` (None = it is over), due at
    `due_ms`. `missed` counts skipped ticks. With `skip_busy` a tick whose predecessor still
    waits for its answer is skipped, too; otherwise it is put off."""

    to: int | None
    due_ms: int = 0
    missed: int = 0
    skip_busy: bool = True


TickOutcome = Literal["fired", "moved", "lost", "busy", "skipped", "crowded", "over"]
"""Outcomes of a tick: its message is in the inbox; the schedule moved without one; another
worker was first; it was put off, or skipped, because its last one waits; it was put off because
the chat or the fleet is busy; its chat was paused for too long."""


class CreatedSchedule(msgspec.Struct, frozen=True):
    """A stored schedule and its next tick; `first` tells whether this call created it."""

    schedule: Schedule
    next_ms: int
    first: bool


class TooManySchedules(Refused):
    """The chat, or the whole store, is at its limit of schedules."""

    def __init__(self, message: str) -> None:
        super().__init__("too_many", message, 60)


class ScheduleOver(Refused):
    """A schedule that the same call created before, and that is over."""

    def __init__(self, id: str) -> None:
        over = f"schedule {id!r} was made by this call before, and is over"
        super().__init__("made_before", over, 0)


class Schedules:
    """All schedules. Every method raises RedisAway; with a `claim` also LeaseLost."""

    def __init__(
        self, client: RedisClient, settings: CronSettings | None = None, limits: InboxLimits | None = None
    ) -> None:
        self._client = client
        self._settings = settings or CronSettings()
        self._limits = limits or InboxLimits()
        self._times = Agenda(client, keys.SCHEDULES)

    async def add(
        self, schedule: Schedule, first_ms: int, *, claim: Claim | None = None, once: bool = True
    ) -> CreatedSchedule:
        """Add a schedule with the first tick `first_ms`. The same id again returns the existing
        one. With `once`, a schedule that is over is not created again. Raises TooManySchedules,
        ScheduleOver, LeaseLost, and Refused when the store is full."""
        session = schedule.session
        settings = self._settings
        member, lease = claim.fence if claim else ("", "")
        outcome, *rest = await self._client.run(
            "schedules/add",
            session=session,
            queue=TURNS,
            id=schedule.id,
            member=member,
            lease=lease,
            record=encode(schedule),
            tick=first_ms,
            most_here=settings.per_chat,
            most_in_all=settings.in_all,
            seen=keys.seen(schedule.channel),
            days=self._limits.seen_days,
            dedupe_id=f"{schedule.chat_id}/cron-{schedule.id}" if once else "",
        )
        match outcome:
            case b"lost":
                raise LeaseLost("the turn that wanted to plan something is not ours any more")
            case b"chat_full":
                many = f"this chat has {settings.per_chat} schedules already; remove one first"
                raise TooManySchedules(many)
            case b"all_full":
                many = "there are too many schedules here just now; only an operator can make room"
                raise TooManySchedules(many)
            case b"over":
                raise ScheduleOver(schedule.id)
        stored, tick = rest
        return CreatedSchedule(decode_schedule(stored), int(tick), outcome == b"made")

    async def remove(self, session: str, id: str, *, claim: Claim | None = None) -> bool:
        """Remove a schedule; return whether it existed. Raises LeaseLost."""
        # Fields with a colon describe schedules; they must not be removed alone.
        if ":" in id:
            return False
        member, lease = claim.fence if claim else ("", "")
        done = await self._client.run(
            "schedules/remove", session=session, queue=TURNS, id=id, member=member, lease=lease
        )
        if done == b"lost":
            raise LeaseLost("the turn that wanted to remove a schedule is not ours any more")
        return bool(done == b"removed")

    async def of_session(self, session: str) -> list[ScheduleStatus]:
        """Return the schedules of a chat, the next one first, without unreadable records."""
        flat = await self._client.command("HGETALL", keys.schedules(session))
        fields = {name.decode(): value for name, value in pairs(flat)}
        found = []
        for id, record in fields.items():
            if ":" in id or (schedule := decode_schedule.or_none(record)) is None:
                continue
            last = fields.get(f"{id}:last")
            found.append(
                ScheduleStatus(
                    schedule=schedule,
                    next_ms=int(fields.get(f"{id}:tick", 0)),
                    runs=int(fields.get(f"{id}:runs", 0)),
                    missed=int(fields.get(f"{id}:missed", 0)),
                    last_ms=None if last is None else int(last),
                    paused=":paused" in fields,
                )
            )
        return sorted(found, key=lambda one: one.next_ms)

    async def sessions(self) -> AsyncIterator[str]:
        """Yield every chat that has schedules, once, in arbitrary order."""
        # ZSCAN may return a member twice, and a chat has several schedules.
        seen: set[str] = set()
        async for flat in self._client.scan("ZSCAN", keys.SCHEDULES):
            for member in flat[::2]:
                session = member.decode().partition(":")[2]
                if session not in seen:
                    seen.add(session)
                    yield session

    async def pause(self, session: str) -> int:
        """Pause the schedules of an unreachable chat. Return how many; 0: they were paused."""
        return await self._pause(session, PAUSED_DAYS * DAY_MS)

    async def resume(self, session: str) -> int:
        """Resume a chat's schedules; passed ticks count as missed. Return how many."""
        return await self._pause(session, "")

    async def _pause(self, session: str, for_ms: int | str) -> int:
        done: int = await self._client.run("schedules/pause", session=session, rest_ms=for_ms)
        return done

    async def due(self, *, now_ms: int | None = None) -> DueSchedules:
        """Read the due schedules; without `now_ms` by the server's clock."""
        at = "" if now_ms is None else now_ms
        now, next_in, *rows = await self._client.run("schedules/due", most=BATCH, at=at)
        found = tuple(
            DueSchedule(member.decode(errors="replace"), score_ms(at), score_ms(tick), decode_schedule.or_none(record))
            for member, at, tick, record in rows
        )
        return DueSchedules(int(now), found, int(next_in) if int(next_in) >= 0 else None)

    async def put_off(self, due: DueSchedule, by_ms: int) -> bool:
        """Put a due schedule off by `by_ms`. Returns False when it has got another time since."""
        return await self._times.put_off(AgendaEntry(due.member, due.due), by_ms)

    async def fire(
        self,
        due: DueSchedule,
        schedule: Schedule,
        move: NextTick,
        message: InboundMessage | None,
        *,
        now_ms: int | None = None,
    ) -> TickOutcome:
        """Run a tick, if it is still the one that was read. In one step `message` enters its chat,
        once, and the schedule moves on; without a message it only moves on. Raises Refused when the
        store is full; the tick stays due."""
        session = schedule.session
        limits = self._limits
        chat_id = schedule.chat_id
        crash_point("before_fire")
        done = await self._client.run(
            "schedules/fire",
            session=session,
            queue=TURNS,
            chats=keys.chats(schedule.channel, schedule.owner),
            id=schedule.id,
            tick=due.tick,
            due_ms=due.due,
            next_tick="" if move.to is None else move.to,
            next_due_ms=move.due_ms,
            missed=move.missed,
            record=encode(message) if message else b"",
            version=PLAIN_VERSION,
            dedupe_id=f"{chat_id}/{schedule.id}:{due.tick}",
            seen=keys.seen(schedule.channel),
            days=limits.seen_days,
            member=keys.turn(session),
            sessions_cap=limits.sessions_cap,
            most_waiting=self._settings.waiting,
            keep_session_ms=limits.session_ms,
            chat_id=chat_id,
            skip_busy=int(move.skip_busy),
            delay_ms=PUT_OFF_MS,
            at="" if now_ms is None else now_ms,
            person=fair_key(message) if message else "",
        )
        crash_point("after_fire")
        outcome: TickOutcome = done.decode()
        return outcome


def rebound(schedules: Iterable[Schedule], session: str) -> Sequence[Schedule]:
    """Copy schedules for another chat."""
    channel, chat = split_session(session)
    chat_of = {"channel": channel, "chat_id": chat, "thread": None}
    return [msgspec.structs.replace(one, **chat_of) for one in schedules]
