"""Subagents: from a claimed lease to a report in their session, or to a release."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.crash_points import crash_point
from shared.errors import BadRecord, LeaseLost, ModelError, TurnStopped
from shared.log import bind_work, logger
from shared.messages.subagent import Outcome, SubagentTask, decode_task
from shared.messages.transcript import AssistantEntry, decode_ledger
from shared.metrics import QUEUE_WAIT_SECONDS, SUBAGENT_RESULTS_DROPPED, SUBAGENTS
from shared.settings import AgentSettings
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import Claim, SubagentWork
from worker.agent.turn import AgentResult
from worker.attempt.apologies import APOLOGIES
from worker.attempt.attempt import NEWER_RELEASE_WAIT_S, run_attempt
from worker.attempt.quarantine import Quarantine
from worker.lease.lease import Lease
from worker.turn.journal import STORE_PATIENCE_S, LeaseJournal
from worker.turn.traces import set_outcome, subagent_span

UNREADABLE_WAIT_S: Final = 60.0

REPORTS: Final[dict[str, tuple[Outcome, str]]] = {
    "crashes": ("poison", APOLOGIES["crashes"]),
    "poison": ("poison", "It made its worker fail every time."),
    "model_away": ("failed", "The model could not be reached for a long time."),
    "error": ("failed", "Something went wrong inside; it could not be done."),
}
"""Outcome and text of the report of a subagent that failed, by reason."""

log = logger("subagents")

AgentCall = Callable[[Claim, SubagentTask, LeaseJournal], Awaitable[AgentResult]]


class RunSubagent:
    """The runner of leased subagents. `agent` does the task; everything around it is here.

    A subagent always reports to its session, whatever became of it. The exception is one that was
    cancelled: the store ended it already.
    """

    def __init__(
        self,
        children: Subagents,
        agent: AgentCall,
        *,
        settings: AgentSettings | None = None,
        quarantine: Quarantine | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.children = children
        self.agent = agent
        self.settings = settings or AgentSettings()
        self.clock = clock
        self._quarantine = quarantine
        self._rng = rng or random.Random()

    async def __call__(self, lease: Lease) -> None:
        """End the subagent of this lease, or release it. Raises LeaseLost, RedisAway."""
        work = lease.claim.subagent
        assert work is not None
        crash_point("after_acquire_child")
        QUEUE_WAIT_SECONDS.labels(lease.queue.name).observe(lease.claim.waited_ms / 1000)
        began = self.clock.monotonic()
        try:
            task = decode_task(work.record)
        except BadRecord as exc:
            log.error("record refused", code=exc.code)
            await lease.queue.release(lease.claim, delay_s=UNREADABLE_WAIT_S, retry_for_s=STORE_PATIENCE_S)
            return
        with bind_work(session=task.session), subagent_span(lease.claim, task.session, task.id) as span:
            outcome = set_outcome(span, await self._attempt(lease, work, task))
            seconds = round(self.clock.monotonic() - began, 3)
            log.info("subagent left", outcome=outcome, child=task.id, seconds=seconds, waited_ms=lease.claim.waited_ms)

    async def _attempt(self, lease: Lease, work: SubagentWork, task: SubagentTask) -> str:
        left_s = self.settings.subagent_timeout_s - work.age_ms / 1000
        try:
            resume = tuple(map(decode_ledger, work.ledger))
        except BadRecord as exc:
            log.warning("subagent left to newer release", why=exc.code)
            if left_s > 0:
                await lease.queue.release(lease.claim, delay_s=NEWER_RELEASE_WAIT_S, retry_for_s=STORE_PATIENCE_S)
                return "left"
            resume = ()
        attempt = SubagentAttempt(self, lease, work, task, LeaseJournal(lease, self.children, resume), left_s)
        return await run_attempt(attempt, quarantine=self._quarantine, settings=self.settings, rng=self._rng)


class SubagentAttempt:
    """One attempt at a subagent (see `Attempt`). `limit_s` is what earlier attempts left of its
    time."""

    log: ClassVar = log
    failed_event: ClassVar = "subagent failed"

    def __init__(
        self,
        run: RunSubagent,
        lease: Lease,
        work: SubagentWork,
        task: SubagentTask,
        journal: LeaseJournal,
        limit_s: float,
    ) -> None:
        self.lease = lease
        self.limit_s = limit_s
        self._run = run
        self._work = work
        self._task = task
        self._journal = journal

    @property
    def work(self) -> SubagentWork:
        return self._work

    async def run(self) -> AgentResult:
        return await self._run.agent(self.lease.claim, self._task, self._journal)

    async def finish(self, result: AgentResult) -> str:
        outcome: Outcome = "ok" if result.outcome in ("done", "empty") else "failed"
        return await self._report(outcome, "" if result.outcome == "empty" else result.content)

    async def stop(self, stopped: TurnStopped, *, isolated: bool) -> str:
        return "quarantine_ended" if isolated else _count("cancelled")

    async def give_up(self, reason: str, note: str = "") -> str:
        if note:
            return await self._report("failed", self._with_last_text(f"It {note}"))
        if reason == "timeout":
            limit = f"It was not done within {self._run.settings.subagent_timeout_s:g} s."
            return await self._report("timeout", self._with_last_text(limit))
        return await self._report(*REPORTS[reason])

    async def refused(self, error: ModelError) -> str:
        return await self._report("failed", "The model refused the request.")

    async def still_waiting(self, waited_s: float) -> None:
        pass  # no person watches a subagent

    async def after_loss(self, lost: LeaseLost) -> str | None:
        return _count("cancelled") if await self._cancelled() else None

    async def _report(self, outcome: Outcome, result: str) -> str:
        """End the subagent and put its report into the inbox of its session, in one step."""
        try:
            status = await self._run.children.finish(
                self._task,
                outcome,
                result,
                claim=self.lease.claim,
                now_ms=self._run.clock.now_ms(),
                retry_for_s=STORE_PATIENCE_S,
            )
        except LeaseLost:
            if not await self._cancelled():
                raise
            return self._drop()
        if status == "dropped":
            self._drop()
        return outcome if status == "known" else _count(outcome)

    async def _cancelled(self) -> bool:
        """Return whether the subagent was cancelled, alone or with its conversation: then nothing
        more of it may be written."""
        return await self._run.children.state(self._task.id) in (None, "cancelled")

    def _drop(self) -> str:
        """Count and log a result that has no conversation to go to any more."""
        SUBAGENT_RESULTS_DROPPED.inc()
        log.warning("subagent result dropped", child=self._task.id, turn=self._task.turn)
        return "dropped"

    def _with_last_text(self, note: str) -> str:
        """Return `note` and the last text that the subagent wrote, if it wrote any."""
        texts = (entry.content for entry in reversed(self._journal.entries) if isinstance(entry, AssistantEntry))
        last = next((text for text in texts if text), "")
        return f"{note}\nWhat it had by then:\n{last}" if last else note


def _count(outcome: Outcome) -> str:
    SUBAGENTS.labels(outcome).inc()
    return outcome
