"""Turns: from a claimed lease to a reply, a release or an apology with a dead letter."""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.crash_points import crash_point
from shared.errors import BadInput, BadRecord, LeaseLost, ModelError, ShoalError, TurnStopped
from shared.log import logger
from shared.messages.live import TurnEvent, TurnState
from shared.messages.outbound import OutboundKind, OutboundMessage, TokensUsed
from shared.messages.schedule import is_background
from shared.messages.transcript import AssistantEntry, TranscriptEntry
from shared.metrics import (
    ANSWER_SECONDS,
    DEAD_LETTERS,
    HISTORY_DROPPED,
    QUEUE_WAIT_SECONDS,
    TURN_SECONDS,
    TURNS,
    TURNS_RUNNING,
)
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import TurnWork
from shared.store.turns.turn_writes import DeadLetter, Turns
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult, saved_history
from worker.attempt.apologies import APOLOGIES
from worker.attempt.attempt import NEWER_RELEASE_WAIT_S, refusal_reason, run_attempt
from worker.attempt.quarantine import Quarantine
from worker.lease.lease import Lease
from worker.turn.conversation import Conversation, NewerLedger, read_conversation, read_joined
from worker.turn.journal import STORE_PATIENCE_S, TurnJournal
from worker.turn.live_updates import LiveUpdates
from worker.turn.traces import link_joined, set_outcome, turn_span

STOPPED: Final = "[stopped by the user]"
INTERRUPTED: Final = "[interrupted by a newer message]"
log = logger("turns")

OnCommit = Callable[[str, int], Awaitable[None]]
"""Called after each commit with the session and the number of entries its conversation has now. An
error it raises is logged."""

AgentCall = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


class RunTurn:
    """The runner of leased turns. `agent` answers a Conversation; everything around it is here."""

    def __init__(
        self,
        client: RedisClient,
        turns: Turns,
        agent: AgentCall,
        *,
        settings: AgentSettings | None = None,
        on_commit: OnCommit | None = None,
        quarantine: Quarantine | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.client = client
        self.turns = turns
        self.agent = agent
        self.settings = settings or AgentSettings()
        self.clock = clock
        self._on_commit = on_commit
        self._quarantine = quarantine
        self._rng = rng or random.Random()

    async def __call__(self, lease: Lease) -> None:
        """End the turn of this lease: commit, release, or dead letter. Raises LeaseLost,
        RedisAway."""
        work = lease.claim.turn
        assert work is not None
        crash_point("after_acquire")
        queue = keys.BACKGROUND if work.background else lease.queue.name
        QUEUE_WAIT_SECONDS.labels(queue).observe(lease.claim.waited_ms / 1000)
        started = self.clock.monotonic()
        TURNS_RUNNING.inc()
        try:
            with turn_span(lease.claim, queue) as span:
                outcome = set_outcome(span, await self._attempt(lease, work))
                # The child of a quarantine has counted the turn already.
                if not lease.counted_by_child:
                    TURNS.labels(outcome).inc()
                seconds = self.clock.monotonic() - started
                TURN_SECONDS.observe(seconds)
                log.info("turn ended", outcome=outcome, seconds=round(seconds, 3), waited_ms=lease.claim.waited_ms)
        finally:
            TURNS_RUNNING.dec()

    def _attempt(self, lease: Lease, work: TurnWork) -> Coroutine[Any, Any, str]:
        """Return the coroutine that ends the turn. Not one itself: every turn would wait through
        it."""
        try:
            conversation = read_conversation(lease.claim)
        except (BadRecord, BadInput) as exc:
            log.error("record refused", code=exc.code)
            return TurnAttempt(self, lease, work, None).give_up("bad_record")
        except NewerLedger as exc:
            return self._leave_to_newer(lease, work, exc)
        if work.stop == work.n:
            # The person stopped it while it waited in the queue.
            lease.interrupt(TurnStopped())
        attempt = TurnAttempt(self, lease, work, conversation)
        return run_attempt(attempt, quarantine=self._quarantine, settings=self.settings, rng=self._rng)

    async def _leave_to_newer(self, lease: Lease, work: TurnWork, newer: NewerLedger) -> str:
        """Release a turn that a newer release began, for a worker of that release. Dead-letter it
        once it has waited as long as an unavailable model may: then there is no such worker."""
        log.warning("turn left to newer release", why=str(newer))
        if work.model_unavailable_ms / 1000 > self.settings.give_up_s:
            return await TurnAttempt(self, lease, work, None).give_up("bad_record")
        await lease.queue.release(lease.claim, delay_s=NEWER_RELEASE_WAIT_S, count="away", retry_for_s=STORE_PATIENCE_S)
        return "left"

    async def after_commit(self, session: str, entries: int) -> None:
        """Call the post-commit hook. The turn is over: an error of the hook is only logged."""
        if self._on_commit is not None:
            try:
                await self._on_commit(session, entries)
            except ShoalError as exc:
                log.warning("post-commit hook failed", error=type(exc).__name__)


class TurnAttempt:
    """One attempt at a turn (see `Attempt`). `conversation` is None when its record is
    unreadable."""

    __slots__ = ("_conversation", "_journal", "_run", "_updates", "_work", "lease", "limit_s")
    log: ClassVar = log
    failed_event: ClassVar = "turn failed"

    def __init__(self, run: RunTurn, lease: Lease, work: TurnWork, conversation: Conversation | None) -> None:
        self.lease = lease
        self.limit_s = run.settings.turn_timeout_s
        self._run = run
        self._work = work
        self._conversation = conversation
        if conversation is not None:
            journal = TurnJournal(lease, run.turns, conversation.resume, conversation.joined)
            self._journal = journal
            self._updates = LiveUpdates(
                run.client,
                conversation.session,
                work.n,
                work.attempt,
                suspended=lambda: lease.suspended,
                reply_sent=journal.reply_sent,
                clock=run.clock,
            )

    @property
    def work(self) -> TurnWork:
        return self._work

    async def run(self) -> AgentResult:
        assert self._conversation is not None
        async with self._updates:
            result = await self._run.agent(self._conversation, self._journal, self._updates)
            crash_point("after_agent")
        return result

    async def finish(self, result: AgentResult) -> str:
        await self._commit("reply", "done", self._journal.pending_reply(result), result.entries, result=result)
        return "done"

    async def stop(self, stopped: TurnStopped, *, isolated: bool) -> str:
        conversation = self._conversation
        assert conversation is not None
        await self._load_missed_joins(conversation)
        # What people have seen is the reply; history also says why it ends there.
        partial = stopped.partial or self._updates.visible
        mark = INTERRUPTED if await self._journal.superseded() else STOPPED
        final = self._assistant_entry(f"{partial.rstrip()}\n\n{mark}".lstrip())
        first, *joined = conversation.entries
        chars = self._run.settings.saved_result_chars
        history = saved_history(first, self._journal.entries, final, joined=joined, result_chars=chars)
        await self._commit("stopped", "stopped", partial, history)
        return "stopped"

    async def give_up(self, reason: str, note: str = "") -> str:
        """Write a dead letter and an apology, so that the next message of the chat is answered."""
        work, conversation = self._work, self._conversation
        reference = secrets.token_hex(4)
        apology = f"Sorry, I {note}" if note else APOLOGIES.get(reason, APOLOGIES["error"])
        dead = DeadLetter(f"{reason} {reference}", work.record)
        history: tuple[TranscriptEntry, ...] = ()
        if conversation is not None:
            await self._load_missed_joins(conversation)
            history = (*conversation.entries, self._assistant_entry(f"[no answer was given: {reason}]"))
        if await self._commit("apology", "failed", f"{apology} (reference {reference})", history, dead):
            messages = len(conversation.ids) if conversation else 1
            log.error("dead letter", reason=reason, reference=reference, messages=messages)
            DEAD_LETTERS.labels(reason).inc(messages)
        return "dead"

    async def refused(self, error: ModelError) -> str:
        return await self.give_up(refusal_reason(error))

    async def still_waiting(self, waited_s: float) -> None:
        if waited_s > self._run.settings.tell_s:
            # Not `self._updates`: it is closed.
            updates = LiveUpdates(self._run.client, self.lease.claim.session, self._work.n, self._work.attempt)
            await updates.add_activity("the model cannot be reached just now; I keep trying")

    async def after_loss(self, lost: LeaseLost) -> str | None:
        return None

    async def _load_missed_joins(self, conversation: Conversation) -> None:
        """Load messages that joined the turn but never reached this process (the reply to `take`
        was lost, or the quarantine child got it), so that they are committed too."""
        if self._work.steers or self._work.joins_at_start:
            for number, record in await self._run.turns.joined(self.lease.claim):
                conversation.joined.setdefault(number, read_joined(self.lease.claim, number, record))

    async def _commit(
        self,
        kind: OutboundKind,
        state: TurnState,
        content: str,
        history: Sequence[TranscriptEntry],
        dead: DeadLetter | None = None,
        *,
        result: AgentResult | None = None,
    ) -> bool:
        """End the turn. Return whether this call did it, and not an earlier one whose reply was
        lost."""
        run, work, conversation, claim = self._run, self._work, self._conversation, self.lease.claim
        line = OutboundMessage(
            content=content,
            turn=work.n,
            in_reply_to=conversation.ids if conversation else (),
            kind=kind,
            at=run.clock.now_ms(),
            usage=None if result is None else _tokens_used(result.usage),
            unfinished=result is not None and result.outcome in ("round_cap", "budget"),
            traceparent=link_joined(conversation),
        )
        crash_point("before_commit")
        committed = await run.turns.commit(
            claim,
            history=history,
            lines=[line],
            event=TurnEvent(work.n, state, work.attempt),
            dead=dead,
            retry_for_s=STORE_PATIENCE_S,
        )
        crash_point("after_commit")
        if committed.first and conversation is not None:
            observe_answers(conversation, state, run.clock.now_ms())
        if committed.dropped:
            HISTORY_DROPPED.inc(committed.dropped)
            log.warning("history dropped", entries=committed.dropped)
        if committed.first:
            await run.after_commit(claim.session, committed.entries)
        return committed.first

    def _assistant_entry(self, content: str) -> AssistantEntry:
        return AssistantEntry(content=content, turn=self._work.n, at=self._run.clock.now_ms())


def observe_answers(conversation: Conversation, state: TurnState, now_ms: int) -> None:
    """Measure how long people waited for each message that the turn ended, joined ones included.

    The time runs from the clock of the gateway that accepted the message to this worker's clock, so
    it is as exact as both are; never below 0. Messages that no person waits for are left out.
    """
    for message in conversation.messages:
        if not is_background(message):
            ANSWER_SECONDS.labels(state).observe(max(0, now_ms - message.timestamp) / 1000)


def _tokens_used(usage: TokenUsage) -> TokensUsed | None:
    """Return the tokens of a turn; None when no provider reported any."""
    if not (usage.prompt_tokens or usage.completion_tokens):
        return None
    return TokensUsed(prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=usage.cached_tokens)
