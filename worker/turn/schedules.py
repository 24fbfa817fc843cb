"""The schedules that one turn may use: those of its own chat, while it holds its lease."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from shared.errors import BadInput, RedisAway, Refused, ToolFailed
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.messages.schedule import HEARTBEAT, EveryPlan, Misfire, Plan, Schedule, ScheduleStatus, is_background
from shared.messages.transcript import AssistantEntry, TranscriptEntry
from shared.settings import CronSettings
from shared.store.schedules.schedules import Schedules
from shared.store.schedules.times import check_plan, check_timezone
from shared.store.turns.queue import Claim
from shared.tracing import current_traceparent
from worker.agent.turn import AgentResult
from worker.guards.marks import TurnMark

HEARTBEAT_FILE: Final = "HEARTBEAT.md"
NOTHING_NEEDED: Final = "HEARTBEAT_OK"
"""The agent's answer to a heartbeat that needs nothing. It is neither sent nor saved."""

log = logger("turns")
T = TypeVar("T")


@dataclass(eq=False)
class TurnSchedules:
    """The schedules of the chat of `message`, for the turn that holds `claim` and has `mark`. A
    turn that a schedule or a report of a subagent began cannot add any: schedules would create
    schedules."""

    store: Schedules
    settings: CronSettings
    claim: Claim
    message: InboundMessage
    mark: TurnMark = field(default_factory=TurnMark)

    async def add(
        self, text: str, plan: Plan, *, misfire: Misfire, timezone: str, key: str, now_ms: int
    ) -> tuple[Schedule, int]:
        claim = self.claim
        turn = self.claim.turn
        assert turn is not None
        if is_background(self.message) or turn.background:
            raise ToolFailed("a run of a schedule cannot make schedules; tell the person what to ask for")
        try:
            check_timezone(timezone)
            first_ms = check_plan(plan, now_ms=now_ms, min_every_s=self.settings.min_every_s)
        except BadInput as exc:
            raise ToolFailed(exc.message) from None
        # The same for one call of one turn on every worker, so that a repeated call adds nothing.
        drawn = f"{claim.session}\0{turn.n}\0{key}"
        id = hashlib.blake2s(drawn.encode(), digest_size=4).hexdigest()
        schedule = self._schedule(id, text, plan, misfire, timezone, now_ms)
        made = await _await_schedules(self.store.add(schedule, first_ms, claim=claim))
        return made.schedule, made.next_ms

    async def listed(self) -> Sequence[ScheduleStatus]:
        found = await _await_schedules(self.store.of_session(self.message.session))
        self.mark.add(label for one in found for label in one.schedule.sources)
        return found

    async def remove(self, id: str) -> None:
        session = self.message.session
        claim = self.claim
        if not await _await_schedules(self.store.remove(session, id, claim=claim)):
            there = ", ".join(one.schedule.id for one in await self.listed()) or "none"
            raise ToolFailed(f"there is no schedule {id!r} in this chat (any more). There are: {there}")

    async def keep_heartbeat(self, entries: Iterable[TranscriptEntry], *, every_s: float, now_ms: int) -> None:
        """Add the heartbeat of the chat if its turn used HEARTBEAT.md. A heartbeat whose file no
        longer exists ends at its next tick. Raises LeaseLost."""
        replies = (entry for entry in entries if isinstance(entry, AssistantEntry))
        calls = (call for reply in replies for call in reply.tool_calls)
        if every_s <= 0 or not any(HEARTBEAT_FILE in call.arguments for call in calls):
            return
        # A page must not give itself a run every half hour: nobody was asked, as `cron` would.
        if self.mark.sources:
            return
        every_ms = int(every_s * 1000)
        plan = EveryPlan(every_ms, now_ms)
        schedule = self._schedule(HEARTBEAT, f"({HEARTBEAT_FILE})", plan, "skip", "UTC", now_ms)
        try:
            await self.store.add(schedule, now_ms + every_ms, claim=self.claim, once=False)
        except (Refused, RedisAway) as exc:
            log.warning("no heartbeat", reason=type(exc).__name__)

    def _schedule(self, id: str, text: str, plan: Plan, misfire: Misfire, timezone: str, now_ms: int) -> Schedule:
        message = self.message
        return Schedule(
            id=id,
            channel=message.channel,
            chat_id=message.chat_id,
            thread=message.thread,
            owner=message.sender_id,
            text=text,
            plan=plan,
            misfire=misfire,
            timezone=timezone,
            created_at=now_ms,
            traceparent=current_traceparent(),
            sources=self.mark.sources,
        )


def drop_quiet_heartbeat(message: InboundMessage, result: AgentResult) -> AgentResult:
    """Return the result, emptied if it answers a heartbeat that needed nothing."""
    if message.metadata.get("schedule") == HEARTBEAT:
        if result.content.strip(" .`*\n") == NOTHING_NEEDED:
            return msgspec.structs.replace(result, content="", entries=())
    return result


async def _await_schedules(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except RedisAway:
        raise ToolFailed(
            "the schedules cannot be reached just now. If this was to change something, list them before you try again"
        ) from None
    except Refused as exc:
        raise ToolFailed(exc.message) from None
