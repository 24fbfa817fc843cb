"""The job of a turn: from a lease to a commit, a release or a dead letter."""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import (
    BadInput,
    BadRecord,
    LeaseLost,
    ModelError,
    RedisAway,
    ShoalError,
    TurnLimited,
    TurnParked,
    TurnReleased,
    TurnStopped,
)
from shared.log import logger
from shared.messages.live import TurnEvent, TurnState
from shared.messages.outbound import OutboundKind, OutboundMessage, TokensUsed
from shared.messages.transcript import AssistantEntry, TranscriptEntry
from shared.metrics import DEAD_LETTERS, HISTORY_DROPPED, QUEUE_WAIT_SECONDS, TURN_SECONDS, TURNS, TURNS_RUNNING
from shared.process.crash_points import crash_point
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import TurnWork
from shared.store.turns.turn_writes import DeadLetter, Turns
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult, saved_history
from worker.attempt.apologies import APOLOGIES
from worker.attempt.retries import CRASH_LIMIT, NEWER_RELEASE_WAIT_S, error_wait, unavailable_wait
from worker.jobs.answer_times import count_answers
from worker.lease.lease import Lease
from worker.process.quarantine import AFTER_CRASHES, Quarantine, Verdict
from worker.turn.conversation import Conversation, NewerLedger, read_conversation, read_joined
from worker.turn.journal import STORE_PATIENCE_S, TurnJournal
from worker.turn.live_updates import LiveUpdates
from worker.turn.traces import link_joined, set_outcome, turn_span

STOPPED: Final = "[stopped by the user]"
INTERRUPTED: Final = "[interrupted by a newer message]"
log = logger("turns")

OnCommit = Callable[[str, int], Awaitable[None]]
"""Called after each commit with the session and how many entries its conversation has now. What it
raises is logged."""

AgentCall = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


class RunTurn:
    """Runs leased turns. `agent` answers a Conversation; everything around it is here."""

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
        self._client = client
        self._turns = turns
        self._agent = agent
        self._settings = settings or AgentSettings()
        self._on_commit = on_commit
        self._quarantine = quarantine
        self._clock = clock
        self._rng = rng or random.Random()

    async def __call__(self, lease: Lease) -> None:
        """End the turn of this lease: commit, release, or dead letter. Raises LeaseLost,
        RedisAway."""
        work = lease.claim.turn
        assert work is not None
        crash_point("after_acquire")
        queue = keys.BACKGROUND if work.background else lease.queue.name
        QUEUE_WAIT_SECONDS.labels(queue).observe(lease.claim.waited_ms / 1000)
        started = self._clock.monotonic()
        TURNS_RUNNING.inc()
        try:
            with turn_span(lease.claim, queue) as now:
                outcome = set_outcome(now, await self._end(lease, work))
                if not lease.counted_by_child:
                    TURNS.labels(outcome).inc()
                seconds = self._clock.monotonic() - started
                TURN_SECONDS.observe(seconds)
                log.info("turn ended", outcome=outcome, seconds=round(seconds, 3), waited_ms=lease.claim.waited_ms)
        finally:
            TURNS_RUNNING.dec()

    async def _end(self, lease: Lease, work: TurnWork) -> str:
        try:
            conversation = read_conversation(lease.claim)
        except (BadRecord, BadInput) as exc:
            log.error("record refused", code=exc.code)
            return await self._dead_letter(lease, work, None, "bad_record")
        except NewerLedger as exc:
            return await self._leave_to_newer(lease, work, exc)
        journal = TurnJournal(lease, self._turns, conversation.resume, conversation.joined)
        if work.crashes >= CRASH_LIMIT:
            return await self._dead_letter(lease, work, conversation, "crashes")
        show = LiveUpdates(
            self._client,
            conversation.session,
            work.n,
            work.attempt,
            suspended=lambda: lease.suspended,
            reply_sent=journal.reply_sent,
            clock=self._clock,
        )
        verdict: Verdict | None = None
        quarantine = self._quarantine if work.crashes >= AFTER_CRASHES else None
        try:
            with lease.interruptible(None if quarantine else self._settings.turn_timeout_s) as limit:
                if work.stop == work.n:
                    raise TurnStopped
                if quarantine is not None:
                    verdict = await quarantine.run(lease)
                else:
                    async with show:
                        result = await self._agent(conversation, journal, show)
                        crash_point("after_agent")
                    limit.stop_timer()
                    await lease.allow()
        except TurnStopped as exc:
            return await self._stopped(lease, work, conversation, journal, exc.partial or show.visible)
        except TurnParked:
            return "parked"
        except TurnReleased as exc:
            await lease.queue.release(lease.claim, delay_s=exc.delay_s, retry_for_s=STORE_PATIENCE_S)
            return "released"
        except TurnLimited as exc:
            return await self._dead_letter(
                lease, work, conversation, exc.limit, apology=f"Sorry, I had to stop: {exc}."
            )
        except TimeoutError:
            if lease.suspended:
                # It was Redis that took so long. When it is back, whoever has the lease goes on.
                await lease.queue.release(lease.claim, retry_for_s=STORE_PATIENCE_S)
                return "released"
            return await self._dead_letter(lease, work, conversation, "timeout")
        except ModelError as exc:
            return await self._model_failed(lease, work, conversation, exc)
        except LeaseLost:
            if quarantine is not None:
                return "quarantine_ended"  # the child ended the turn, and a renewal found the lease gone
            raise
        except RedisAway:
            raise  # nothing of this turn can be written any more
        except Exception:
            log.exception("turn failed", errors=work.errors + 1)
            return await self._failed(lease, work, conversation)
        if verdict is not None:
            return await self._after_quarantine(lease, work, conversation, verdict)
        reply = journal.pending_reply(result)
        await self._commit(lease, work, conversation, "reply", "done", reply, result.entries, result=result)
        return "done"

    async def _leave_to_newer(self, lease: Lease, work: TurnWork, newer: NewerLedger) -> str:
        """For a worker of the release that began it; when none comes for as long as a model may be
        away, nobody can."""
        log.warning("turn left to others", why=str(newer))
        if work.away_ms / 1000 > self._settings.give_up_s:
            return await self._dead_letter(lease, work, None, "bad_record")
        await lease.queue.release(lease.claim, delay_s=NEWER_RELEASE_WAIT_S, count="away", retry_for_s=STORE_PATIENCE_S)
        return "left"

    async def _after_quarantine(
        self, lease: Lease, work: TurnWork, conversation: Conversation, verdict: Verdict
    ) -> str:
        if verdict == "guilty":
            return await self._dead_letter(lease, work, conversation, "poison")
        if verdict == "unproven":
            await lease.queue.release(lease.claim, delay_s=1.0, count="crashes", retry_for_s=STORE_PATIENCE_S)
        return f"quarantine_{verdict}"

    async def _load_missed_joins(self, lease: Lease, work: TurnWork, conversation: Conversation) -> None:
        """What joined the turn unheard, for the answer to its `take` was lost or a child got it,
        ends with it."""
        if work.steers or work.joins_at_start:
            for number, record in await self._turns.joined(lease.claim):
                conversation.joined.setdefault(number, read_joined(lease.claim, number, record))

    async def _commit(
        self,
        lease: Lease,
        work: TurnWork,
        conversation: Conversation | None,
        kind: OutboundKind,
        state: TurnState,
        content: str,
        history: Sequence[TranscriptEntry],
        dead: DeadLetter | None = None,
        *,
        result: AgentResult | None = None,
    ) -> bool:
        """End the turn; whether this did it, and not an earlier call."""
        line = OutboundMessage(
            content=content,
            turn=work.n,
            in_reply_to=conversation.ids if conversation else (),
            kind=kind,
            at=self._clock.now_ms(),
            usage=None if result is None else _tokens_used(result.usage),
            unfinished=result is not None and result.outcome in ("round_cap", "budget"),
            traceparent=link_joined(conversation),
        )
        crash_point("before_commit")
        committed = await self._turns.commit(
            lease.claim,
            history=history,
            lines=[line],
            event=TurnEvent(work.n, state, work.attempt),
            dead=dead,
            retry_for_s=STORE_PATIENCE_S,
        )
        crash_point("after_commit")
        if committed.first and conversation is not None:
            count_answers(conversation, state, self._clock.now_ms())
        if committed.dropped:
            HISTORY_DROPPED.inc(committed.dropped)
            log.warning("history dropped", entries=committed.dropped)
        if committed.first and self._on_commit is not None:
            try:
                await self._on_commit(lease.claim.session, committed.entries)
            except ShoalError as exc:
                log.warning("nothing followed the commit", error=type(exc).__name__)
        return committed.first

    async def _stopped(
        self, lease: Lease, work: TurnWork, conversation: Conversation, journal: TurnJournal, partial: str
    ) -> str:
        await self._load_missed_joins(lease, work, conversation)
        mark = INTERRUPTED if await journal.superseded() else STOPPED
        final = self._assistant_entry(work, f"{partial.rstrip()}\n\n{mark}".lstrip())
        first, *joined = conversation.entries
        history = saved_history(
            first, journal.entries, final, joined=joined, result_chars=self._settings.saved_result_chars
        )
        await self._commit(lease, work, conversation, "stopped", "stopped", partial, history)
        return "stopped"

    async def _model_failed(self, lease: Lease, work: TurnWork, conversation: Conversation, error: ModelError) -> str:
        log.warning("model failed", kind=error.kind, retryable=error.retryable)
        if not error.retryable:
            reason = error.kind if error.kind in APOLOGIES else "error"
            return await self._dead_letter(lease, work, conversation, reason)
        away_s = work.away_ms / 1000
        wait_s = unavailable_wait(error, work.attempt, away_s, self._settings, self._rng)
        if wait_s is None:
            return await self._dead_letter(lease, work, conversation, "model_away")
        if away_s + wait_s > self._settings.tell_s:
            show = LiveUpdates(self._client, lease.claim.session, work.n, work.attempt)
            await show.add_activity("the model cannot be reached just now; I keep trying")
        await lease.queue.release(lease.claim, delay_s=wait_s, count="away", retry_for_s=STORE_PATIENCE_S)
        return "model_away"

    async def _failed(self, lease: Lease, work: TurnWork, conversation: Conversation) -> str:
        wait_s = error_wait(work.errors, self._rng)
        if wait_s is None:
            return await self._dead_letter(lease, work, conversation, "error")
        await lease.queue.release(lease.claim, delay_s=wait_s, count="errors", retry_for_s=STORE_PATIENCE_S)
        return "error"

    async def _dead_letter(
        self, lease: Lease, work: TurnWork, conversation: Conversation | None, reason: str, *, apology: str = ""
    ) -> str:
        """Dead letter and apology, so that the next message of the chat can go on."""
        reference = secrets.token_hex(4)
        text = f"{apology or APOLOGIES.get(reason, APOLOGIES['error'])} (reference {reference})"
        dead = DeadLetter(f"{reason} {reference}", work.record)
        history: tuple[TranscriptEntry, ...] = ()
        if conversation is not None:
            await self._load_missed_joins(lease, work, conversation)
            history = (*conversation.entries, self._assistant_entry(work, f"[no answer was given: {reason}]"))
        if await self._commit(lease, work, conversation, "apology", "failed", text, history, dead):
            messages = len(conversation.ids) if conversation else 1
            log.error("dead letter", reason=reason, reference=reference, messages=messages)
            DEAD_LETTERS.labels(reason).inc(messages)
        return "dead"

    def _assistant_entry(self, work: TurnWork, content: str) -> AssistantEntry:
        return AssistantEntry(content=content, turn=work.n, at=self._clock.now_ms())


def _tokens_used(usage: TokenUsage) -> TokensUsed | None:
    """None when no provider has said it."""
    if not (usage.prompt_tokens or usage.completion_tokens):
        return None
    return TokensUsed(prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=usage.cached_tokens)
