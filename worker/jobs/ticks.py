"""Runs the schedules of chats. Every worker polls; the first one to fire a tick runs it."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, ToolFailed
from shared.ids import log_id
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.messages.schedule import EveryPlan, Misfire, Plan, Schedule, tick_message
from shared.metrics import SCHEDULES_FIRED
from shared.settings import CronSettings
from shared.store.schedules import schedules
from shared.store.schedules.schedules import DueSchedule, DueSchedules, NextTick, Schedules
from shared.store.schedules.times import next_tick, ticks_between
from shared.tracing import current, fresh, span
from shared.tracing.spans import TICK
from worker.turn.schedules import NOTHING_NEEDED

POLL_S: Final = 5.0
"""Seconds between two polls when nothing is due. A schedule that is due sooner may run late."""

SOON_S: Final = 1.0
JITTER_S: Final = 0.25  # random part of each wait, so that workers do not poll together
CONCURRENCY: Final = 4
"""Ticks at once: fewer than pooled connections. A file that hangs blocks few others."""

LATER_MS: Final = 60_000
COUNT_LIMIT: Final = 250  # of missed ticks that are counted at once

HEARTBEAT_TEXT: Final = (
    "Your file HEARTBEAT.md says what to look after. Do now what it asks for, and keep it up to "
    "date. If nothing of it needs anything now, answer with {quiet} alone: then nobody is told."
    "\n\n---\n\n{content}"
)

ReadHeartbeat = Callable[[str], Awaitable[str]]
"""Returns the HEARTBEAT.md of a session, `""` if none. Raises ToolFailed if unreadable."""

log = logger("ticks")


class TickPlan(NamedTuple):
    """The plan for one tick: whether it runs, and the next state of its schedule."""

    run: bool
    move: NextTick


def plan_tick(plan: Plan, misfire: Misfire, tick: int, now: int, settings: CronSettings) -> TickPlan:
    """Return the plan for `tick` at `now`, both in ms. At most `late_s` late counts as in time."""
    if now - tick <= settings.late_s * 1000:
        to = next_tick(plan, tick)
        return TickPlan(True, NextTick(to=to, due_ms=to or 0, skip_busy=misfire == "skip"))
    if misfire == "all":
        # All missed ticks run if there are not too many.
        newest = ticks_between(plan, tick, now, limit=settings.catch_up)
        if len(newest) == settings.catch_up:
            passed = len(ticks_between(plan, tick, newest[0] - 1, limit=COUNT_LIMIT))
            return TickPlan(False, NextTick(to=newest[0], due_ms=now, missed=passed + 1))
        to = next_tick(plan, tick)
        due = 0 if to is None else max(to, now + 1)
        return TickPlan(True, NextTick(to=to, due_ms=due, skip_busy=False))
    passed = len(ticks_between(plan, tick, now, limit=COUNT_LIMIT))
    to = next_tick(plan, now)
    if misfire == "skip":
        return TickPlan(False, NextTick(to=to, due_ms=to or 0, missed=passed + 1))
    return TickPlan(True, NextTick(to=to, due_ms=to or 0, missed=passed, skip_busy=False))


@dataclass(eq=False)
class Ticker:
    """Runs due ticks. `heartbeat_s` is the period of heartbeats; 0: they end at their next tick.
    Each poll sets `clock` by the server's time, which comes with what is due."""

    schedules: Schedules
    settings: CronSettings
    _: KW_ONLY
    heartbeat_s: float = 0.0
    read_heartbeat: ReadHeartbeat | None = None
    rng: random.Random = field(default_factory=random.Random)
    clock: Clock = SYSTEM_CLOCK

    async def run(self) -> None:
        """Poll until cancelled. Outages of Redis do not end it; the lease loops log them."""
        while True:
            wait_s = POLL_S
            try:
                wait_s = await self.run_once()
            except RedisAway:
                pass
            except Refused as exc:
                log.warning("ticks wait", reason=exc.code)
            except Exception:
                log.exception("ticks wait")  # turns are answered all the same
            await asyncio.sleep(wait_s + self.rng.uniform(0, JITTER_S))

    async def run_once(self, *, now_ms: int | None = None) -> float:
        """Run what is due, by the server's clock or `now_ms`. Return the seconds until the next
        poll. Raises RedisAway, and Refused when the store is full: due ticks stay due."""
        look = await self.schedules.due(now_ms=now_ms)
        if now_ms is None:
            self.clock.follow(look.now_ms)
        due = list(look.due)
        self.rng.shuffle(due)  # workers that come at the same time share the work
        for at in range(0, len(due), CONCURRENCY):
            try:
                async with asyncio.TaskGroup() as group:
                    for one in due[at : at + CONCURRENCY]:
                        group.create_task(self._run_isolated(one, look, now_ms))
            except BaseExceptionGroup as fault:
                raise fault.exceptions[0] from None
        if len(due) == schedules.BATCH:
            return 0.0
        next_s = POLL_S if look.next_in_ms is None else look.next_in_ms / 1000
        return min(next_s, SOON_S if due else POLL_S)

    async def _run_isolated(self, due: DueSchedule, look: DueSchedules, now_ms: int | None) -> None:
        """Run one schedule. A failure puts it off and does not affect the others."""
        try:
            if due.schedule is None:
                log.warning("schedule left to newer release", member=log_id(due.member))
                await self.schedules.put_off(due, LATER_MS)
            else:
                await self._run_tick(due, due.schedule, look.now_ms, now_ms)
        except (RedisAway, Refused):
            raise
        except ToolFailed as exc:
            log.warning("heartbeat put off", reason=str(exc))
            await self.schedules.put_off(due, LATER_MS)
        except Exception:
            log.exception("schedule put off", member=log_id(due.member))
            await self.schedules.put_off(due, LATER_MS)

    async def _run_tick(self, due: DueSchedule, schedule: Schedule, now: int, now_ms: int | None) -> None:
        settings = self.settings
        tick = due.tick
        late = now - tick > settings.late_s * 1000
        wait_ms = _spread_ms(due.member, settings.spread_s)
        if late and schedule.misfire != "skip" and not due.put_off and wait_ms > 0:
            if await self.schedules.put_off(due, wait_ms):
                SCHEDULES_FIRED.labels("put_off").inc()
            return
        if schedule.heartbeat:
            chosen, text = await self._plan_heartbeat(due, schedule, now)
        else:
            chosen = plan_tick(schedule.plan, schedule.misfire, tick, now, settings)
            text = schedule.text
        with span(TICK) as began:  # a trace of its own: the schedule may have been added long ago
            message: InboundMessage | None = None
            if chosen.run:
                if began.on:
                    began.set("shoal.channel", schedule.channel)
                    began.set("shoal.session", log_id(schedule.session))
                    began.set("shoal.schedule", schedule.id)
                    began.link(schedule.traceparent)
                trace = (current() or fresh()).traceparent
                message = tick_message(schedule, tick, now_ms=now, late=late, text=text, traceparent=trace)
            outcome = await self.schedules.fire(due, schedule, chosen.move, message, now_ms=now_ms)
            if outcome != "fired":
                began.drop()
        counts = _count_outcomes(outcome, chosen.move)
        for name, many in counts.items():
            SCHEDULES_FIRED.labels(name).inc(many)
        if counts:
            log.info("tick", schedule=schedule.id, session=log_id(schedule.session), late=late, **counts)

    async def _plan_heartbeat(self, due: DueSchedule, schedule: Schedule, now: int) -> tuple[TickPlan, str]:
        """Read HEARTBEAT.md before a model is asked. Without the file the heartbeat ends."""
        content = ""
        if self.heartbeat_s and self.read_heartbeat is not None:
            content = (await self.read_heartbeat(schedule.session)).strip()
        if not content:
            return TickPlan(False, NextTick(to=None)), ""
        plan = EveryPlan(int(self.heartbeat_s * 1000), due.tick)
        text = HEARTBEAT_TEXT.format(quiet=NOTHING_NEEDED, content=content)
        return plan_tick(plan, "skip", due.tick, now, self.settings), text


def _count_outcomes(outcome: schedules.TickOutcome, move: NextTick) -> dict[str, int]:
    """Return the number of ticks by outcome, for the metric and the log."""
    if outcome == "lost":
        return {}
    if outcome in ("busy", "crowded"):
        return {"put_off": 1}
    if outcome == "over" or (outcome == "moved" and move.to is None and not move.missed):
        return {"dropped": 1}
    counts = {"fired": int(outcome == "fired"), "missed": move.missed + int(outcome == "skipped")}
    return {name: many for name, many in counts.items() if many}


def _spread_ms(member: str, spread_s: float) -> int:
    """Return a delay that is the same on every worker, and evenly spread over all schedules."""
    if spread_s <= 0:
        return 0
    drawn = int.from_bytes(hashlib.blake2s(member.encode(), digest_size=8).digest())
    return 1 + drawn % int(spread_s * 1000)
