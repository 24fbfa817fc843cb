"""Subagents: from a claimed lease to a report in their session, or to a release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from shared.crash_points import crash_point
from shared.errors import BadRecord, LeaseLost, ModelError, TurnStopped
from shared.log import bind_work, logger
from shared.messages.subagent import Outcome, SubagentTask, decode_task
from shared.messages.transcript import AssistantEntry, decode_ledger
from shared.metrics import QUEUE_WAIT_SECONDS, SUBAGENT_RESULTS_DROPPED, SUBAGENTS
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import Claim, SubagentWork
from worker.agent.turn import AgentResult
from worker.attempt.attempt import APOLOGIES, NEWER_RELEASE_WAIT_S, Attempt, AttemptRules
from worker.lease.lease import STORE_PATIENCE_S, Lease
from worker.turn.journal import LeaseJournal
from worker.turn.traces import set_outcome, subagent_span

UNREADABLE_WAIT_S: Final = 60.0

REPORTS: Final[dict[str, tuple[Outcome, str]]] = {
    "crashes": ("poison", APOLOGIES["crashes"]),
    "poison": ("poison", "It made its worker fail every time."),
    "model_away": ("failed", "The model could not be reached for a long time."),
    "model_fails": ("failed", "The model failed at it again and again."),
    "error": ("failed", "Something went wrong inside; it could not be done."),
}
"""Outcome and text of the report of a subagent that failed, by reason."""

log = logger("subagents")

AgentCall = Callable[[Claim, SubagentTask, LeaseJournal], Awaitable[AgentResult]]


@dataclass(eq=False)
class RunSubagent(AttemptRules):
    """The runner of leased subagents. `agent` does the task; everything around it is here. A
    subagent always reports to its session, whatever became of it. The exception is one that was
    cancelled: the store ended it already."""

    children: Subagents
    agent: AgentCall

    async def __call__(self, lease: Lease) -> None:
        """End the subagent of this lease, or release it. Raises LeaseLost, RedisAway."""
        claim = lease.claim
        work = lease.claim.subagent
        assert work is not None
        crash_point("after_acquire_child")
        QUEUE_WAIT_SECONDS.labels(lease.queue.name).observe(claim.waited_ms / 1000)
        began = self.clock.monotonic()
        try:
            task = decode_task(work.record)
        except BadRecord as exc:
            log.error("record refused", code=exc.code)
            await lease.release(delay_s=UNREADABLE_WAIT_S)
            return
        with bind_work(session=task.session), subagent_span(claim, task.session, task.id) as span:
            outcome = set_outcome(span, await self._attempt(lease, work, task))
            seconds = round(self.clock.monotonic() - began, 3)
            waited_ms = claim.waited_ms
            log.info("subagent left", outcome=outcome, child=task.id, seconds=seconds, waited_ms=waited_ms)

    async def _attempt(self, lease: Lease, work: SubagentWork, task: SubagentTask) -> str:
        left_s = self.settings.subagent_timeout_s - work.age_ms / 1000
        try:
            resume = tuple(map(decode_ledger, work.ledger))
        except BadRecord as exc:
            log.warning("subagent left to newer release", why=exc.code)
            if left_s > 0:
                await lease.release(delay_s=NEWER_RELEASE_WAIT_S)
                return "left"
            resume = ()
        attempt = SubagentAttempt(self, lease, work, left_s)
        attempt.task, attempt.journal = task, LeaseJournal(lease, self.children, resume, sources=task.sources)
        return await attempt.run_to_end()


class SubagentAttempt(Attempt):
    """One attempt at a subagent. `limit_s` is what earlier attempts left of its time."""

    log: ClassVar = log
    failed_event: ClassVar = "subagent failed"
    rules: RunSubagent
    task: SubagentTask
    journal: LeaseJournal

    async def run(self) -> AgentResult:
        return await self.rules.agent(self.lease.claim, self.task, self.journal)

    async def finish(self, result: AgentResult) -> str:
        outcome: Outcome = "ok" if result.outcome in ("done", "empty") else "failed"
        return await self._report(outcome, "" if result.outcome == "empty" else result.content)

    async def stop(self, stopped: TurnStopped) -> str:
        return _count("cancelled")

    async def give_up(self, reason: str, note: str = "", words: str = "") -> str:
        if note:
            return await self._report("failed", self._with_last_text(f"It {note}"))
        if reason == "timeout":
            limit = f"It was not done within {self.rules.settings.subagent_timeout_s:g} s."
            return await self._report("timeout", self._with_last_text(limit))
        return await self._report(*REPORTS[reason])

    async def refused(self, error: ModelError) -> str:
        return await self._report("failed", "The model refused the request.")

    async def still_waiting(self, error: ModelError, wait_s: float) -> None:
        pass  # no person watches a subagent

    async def after_loss(self) -> str | None:
        return _count("cancelled") if await self._cancelled() else None

    async def _report(self, outcome: Outcome, result: str) -> str:
        """End the subagent and put its report into the inbox of its session, in one step."""
        mark = self.journal.mark
        mark.add_ledger(self.journal.entries)
        try:
            status = await self.rules.children.finish(
                self.task,
                outcome,
                result,
                claim=self.lease.claim,
                now_ms=self.rules.clock.now_ms(),
                sources=mark.sources,
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
        """Return whether it was cancelled, perhaps with its chat: nothing may be written then."""
        return await self.rules.children.state(self.task.id) in (None, "cancelled")

    def _drop(self) -> str:
        SUBAGENT_RESULTS_DROPPED.inc()
        log.warning("subagent result dropped", child=self.task.id, turn=self.task.turn)
        return "dropped"

    def _with_last_text(self, note: str) -> str:
        """Return `note` and the last text that the subagent wrote, if it wrote any."""
        for entry in reversed(self.journal.entries):
            if isinstance(entry, AssistantEntry) and entry.content:
                return f"{note}\nWhat it had by then:\n{entry.content}"
        return note


def _count(outcome: Outcome) -> str:
    SUBAGENTS.labels(outcome).inc()
    return outcome
