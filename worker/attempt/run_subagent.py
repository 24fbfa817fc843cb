"""The job of a subagent: from a lease to its end, which its session is told of, or to a release."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import (
    BadRecord,
    LeaseLost,
    ModelError,
    RedisAway,
    TurnLimited,
    TurnReleased,
    TurnStopped,
)
from shared.log import bind_work, logger
from shared.messages.subagent import Outcome, SubagentTask, decode_task
from shared.messages.transcript import AssistantEntry, decode_ledger
from shared.metrics import QUEUE_WAIT_SECONDS, SUBAGENT_RESULTS_DROPPED, SUBAGENTS
from shared.process.crash_points import crash_point
from shared.settings import AgentSettings
from shared.store.subagents.subagents import Children
from shared.store.turns.queue import ChildWork
from worker.agent.turn import AgentResult
from worker.attempt.apologies import APOLOGIES
from worker.attempt.retries import CRASH_LIMIT, NEWER_RELEASE_WAIT_S, error_wait, unavailable_wait
from worker.lease.lease import Lease
from worker.process.quarantine import AFTER_CRASHES, Quarantine, Verdict
from worker.subagents.assignment import Assignment
from worker.turn.journal import STORE_PATIENCE_S, LeaseJournal
from worker.turn.traces import set_outcome, subagent_span

UNREADABLE_WAIT_S: Final = 60.0
log = logger("subagents")

AgentCall = Callable[[Assignment, LeaseJournal], Awaitable[AgentResult]]


class RunSubagent:
    """Runs leased subagents. `agent` does an Assignment; everything around it is here.

    What a turn does at its faults holds here, too: attempts are counted, a model that is away costs
    no slot, who stood in two crashes runs apart. What ends differently is the end: a subagent
    reports, whatever became of it, unless somebody has cancelled it: then it is ended in the store
    already.
    """

    def __init__(
        self,
        children: Children,
        agent: AgentCall,
        *,
        settings: AgentSettings | None = None,
        quarantine: Quarantine | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self._children = children
        self._agent = agent
        self._settings = settings or AgentSettings()
        self._quarantine = quarantine
        self._clock = clock
        self._rng = rng or random.Random()

    async def __call__(self, lease: Lease) -> None:
        """End the subagent of this lease, or release it. Raises LeaseLost, RedisAway."""
        work = lease.claim.child
        assert work is not None
        crash_point("after_acquire_child")
        QUEUE_WAIT_SECONDS.labels(lease.queue.name).observe(lease.claim.waited_ms / 1000)
        began = self._clock.monotonic()
        try:
            task = decode_task(work.record)
        except BadRecord as exc:
            log.error("record refused", code=exc.code)
            await lease.queue.release(lease.claim, delay_s=UNREADABLE_WAIT_S, retry_for_s=STORE_PATIENCE_S)
            return
        about = bind_work(session=task.session)
        with about, subagent_span(lease.claim, task.session, task.id) as now:
            what = set_outcome(now, await self._end(lease, work, task))
            seconds = round(self._clock.monotonic() - began, 3)
            log.info("subagent left", outcome=what, child=task.id, seconds=seconds, waited_ms=lease.claim.waited_ms)

    async def _end(self, lease: Lease, work: ChildWork, task: SubagentTask) -> str:
        left_s = self._settings.subagent_timeout_s - work.age_ms / 1000
        try:
            resume = tuple(map(decode_ledger, work.ledger))
        except BadRecord as exc:
            log.warning("subagent left to others", why=exc.code)  # of a newer release, whose worker shall go on
            if left_s > 0:
                await lease.queue.release(lease.claim, delay_s=NEWER_RELEASE_WAIT_S, retry_for_s=STORE_PATIENCE_S)
                return "left"
            resume = ()
        if work.crashes >= CRASH_LIMIT:
            return await self._report(lease, task, "poison", APOLOGIES["crashes"])
        journal = LeaseJournal(lease, self._children, resume)
        if left_s <= 0:
            return await self._late(lease, task, journal)
        verdict: Verdict | None = None
        quarantine = self._quarantine if work.crashes >= AFTER_CRASHES else None
        try:
            with lease.interruptible(None if quarantine else left_s) as limit:
                if quarantine is not None:
                    verdict = await quarantine.run(lease)
                else:
                    result = await self._agent(Assignment(lease.claim, task, resume), journal)
                    limit.stop_timer()
                    await lease.allow()
        except TurnReleased as exc:
            await lease.queue.release(lease.claim, delay_s=exc.delay_s, retry_for_s=STORE_PATIENCE_S)
            return "released"
        except TurnLimited as exc:
            return await self._report(lease, task, "failed", _with_best(journal, f"It had to stop: {exc}."))
        except TimeoutError:
            if lease.suspended:
                await lease.queue.release(lease.claim, retry_for_s=STORE_PATIENCE_S)
                return "released"
            return await self._late(lease, task, journal)
        except ModelError as exc:
            return await self._model_failed(lease, work, task, exc)
        except (TurnStopped, LeaseLost) as exc:
            if quarantine is None and await self._cancelled(task, exc):
                return _count("cancelled")
            if quarantine is not None:
                return "quarantine_ended"
            raise
        except RedisAway:
            raise  # nothing of it can be written any more
        except Exception:
            log.exception("subagent failed", errors=work.errors + 1)
            return await self._failed(lease, work, task)
        if verdict is not None:
            return await self._after_quarantine(lease, task, verdict)
        outcome: Outcome = "ok" if result.outcome in ("done", "empty") else "failed"
        return await self._report(lease, task, outcome, "" if result.outcome == "empty" else result.content)

    async def _report(self, lease: Lease, task: SubagentTask, outcome: Outcome, result: str) -> str:
        """End it, and tell its session, in one step."""
        try:
            status = await self._children.end(
                task,
                outcome,
                result,
                claim=lease.claim,
                now_ms=self._clock.now_ms(),
                retry_for_s=STORE_PATIENCE_S,
            )
        except LeaseLost as exc:
            if not await self._cancelled(task, exc):
                raise
            return _drop(task)
        if status == "dropped":
            _drop(task)
        return outcome if status == "known" else _count(outcome)

    async def _cancelled(self, task: SubagentTask, exc: Exception) -> bool:
        """Whether somebody ended it, alone or with its conversation; then nothing more is to be
        written."""
        if isinstance(exc, TurnStopped):
            return True
        return await self._children.state(task.id) in (None, "cancelled")

    async def _after_quarantine(self, lease: Lease, task: SubagentTask, verdict: Verdict) -> str:
        if verdict == "guilty":
            return await self._report(lease, task, "poison", "It made its worker fail every time.")
        if verdict == "unproven":
            await lease.queue.release(lease.claim, delay_s=1.0, count="crashes", retry_for_s=STORE_PATIENCE_S)
        return f"quarantine_{verdict}"

    async def _late(self, lease: Lease, task: SubagentTask, journal: LeaseJournal) -> str:
        note = f"It was not done within {self._settings.subagent_timeout_s:g} s."
        return await self._report(lease, task, "timeout", _with_best(journal, note))

    async def _model_failed(self, lease: Lease, work: ChildWork, task: SubagentTask, error: ModelError) -> str:
        log.warning("model failed", kind=error.kind, retryable=error.retryable)
        if not error.retryable:
            return await self._report(lease, task, "failed", "The model refused the request.")
        wait_s = unavailable_wait(error, work.attempt, work.away_ms / 1000, self._settings, self._rng)
        if wait_s is None:
            return await self._report(lease, task, "failed", "The model could not be reached for a long time.")
        await lease.queue.release(lease.claim, delay_s=wait_s, count="away", retry_for_s=STORE_PATIENCE_S)
        return "model_away"

    async def _failed(self, lease: Lease, work: ChildWork, task: SubagentTask) -> str:
        wait_s = error_wait(work.errors, self._rng)
        if wait_s is None:
            return await self._report(lease, task, "failed", "Something went wrong inside; it could not be done.")
        await lease.queue.release(lease.claim, delay_s=wait_s, count="errors", retry_for_s=STORE_PATIENCE_S)
        return "error"


def _count(outcome: Outcome) -> str:
    SUBAGENTS.labels(outcome).inc()
    return outcome


def _drop(task: SubagentTask) -> str:
    """A result that nobody is there for: its conversation is over. It leaves a record, and no
    more."""
    SUBAGENT_RESULTS_DROPPED.inc()
    log.warning("subagent result dropped", child=task.id, turn=task.turn)
    return "dropped"


def _with_best(journal: LeaseJournal, note: str) -> str:
    """The last that it said, and why that is not all."""
    said = (entry.content for entry in reversed(journal.entries) if isinstance(entry, AssistantEntry))
    best = next((text for text in said if text), "")
    return f"{note}\nWhat it had by then:\n{best}" if best else note
