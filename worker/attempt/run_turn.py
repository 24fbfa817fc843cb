"""Turns: from a claimed lease to a reply, a release or an apology with a dead letter."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from shared import metrics
from shared.crash_points import crash_point
from shared.errors import BadInput, BadRecord, ModelClosed, ModelError, ShoalError, TurnStopped
from shared.ids import API
from shared.log import logger
from shared.messages.inbound import ADMIN
from shared.messages.live import TurnEvent, TurnState
from shared.messages.model_waits import why_waiting
from shared.messages.outbound import OutboundKind, OutboundMessage, TokensUsed, WorkDone, with_reason
from shared.messages.schedule import is_background
from shared.messages.transcript import AssistantEntry, TranscriptEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import TurnWork
from shared.store.turns.turn_writes import Committed, DeadLetter, Turns
from worker.agent.history import saved_history
from worker.agent.turn import AgentResult
from worker.attempt.attempt import APOLOGIES, NEWER_RELEASE_WAIT_S, Attempt, AttemptRules
from worker.guards.marks import TurnMark
from worker.lease.lease import STORE_PATIENCE_S, Lease
from worker.turn.conversation import Conversation, NewerLedger, read_conversation, read_joined
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates
from worker.turn.traces import link_joined, set_outcome, turn_span

STOPPED: Final = "[stopped by the user]"
INTERRUPTED: Final = "[interrupted by a newer message]"
WITHHELD: Final = "[a message that is left out: the model failed at it each time]"
log = logger("turns")

OnCommit = Callable[[str, Committed, bool], Awaitable[None]]
"""Called after each commit with the session, the result, and whether the turn was answered. Its
errors are logged."""

AgentCall = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


@dataclass(eq=False)
class RunTurn(AttemptRules):
    """The runner of leased turns. `agent` answers a Conversation; everything around it is here."""

    client: RedisClient
    turns: Turns
    agent: AgentCall
    on_commit: OnCommit | None = field(default=None, kw_only=True)

    async def __call__(self, lease: Lease) -> None:
        """End the turn: commit, release, or dead letter. Raises LeaseLost, RedisAway."""
        claim = lease.claim
        work = lease.claim.turn
        assert work is not None
        crash_point("after_acquire")
        queue = keys.BACKGROUND if work.background else lease.queue.name
        metrics.QUEUE_WAIT_SECONDS.labels(queue).observe(claim.waited_ms / 1000)
        started = self.clock.monotonic()
        metrics.TURNS_RUNNING.inc()
        try:
            with turn_span(claim, queue) as span:
                outcome = set_outcome(span, await self._attempt(lease, work))
                # What a child of the quarantine has ended it has counted, too.
                if outcome != "quarantine_ended":
                    metrics.TURNS.labels(outcome).inc()
                took_s = self.clock.monotonic() - started
                metrics.TURN_SECONDS.observe(took_s)
                seconds = round(took_s, 3)
                waited_ms = claim.waited_ms
                log.info("turn ended", outcome=outcome, seconds=seconds, waited_ms=waited_ms)
        finally:
            metrics.TURNS_RUNNING.dec()

    def _attempt(self, lease: Lease, work: TurnWork) -> Coroutine[Any, Any, str]:
        """Return the coroutine that ends the turn: not one itself, for every turn would wait."""
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
        return TurnAttempt(self, lease, work, conversation).run_to_end()

    async def _leave_to_newer(self, lease: Lease, work: TurnWork, newer: NewerLedger) -> str:
        """Release a turn that a newer release began, for a worker of that release. Dead-letter it
        once it has waited as long as an unavailable model may: then there is no such worker."""
        log.warning("turn left to newer release", why=str(newer))
        if work.model_unavailable_ms / 1000 > self.settings.give_up_s:
            return await TurnAttempt(self, lease, work, None).give_up("bad_record")
        await lease.release(delay_s=NEWER_RELEASE_WAIT_S, count="newer")
        return "left"


class TurnAttempt(Attempt):
    """One attempt at a turn. `conversation` is None when its record is unreadable."""

    log: ClassVar = log
    failed_event: ClassVar = "turn failed"
    rules: RunTurn
    work: TurnWork

    def __init__(self, rules: RunTurn, lease: Lease, work: TurnWork, conversation: Conversation | None) -> None:
        super().__init__(rules, lease, work, rules.settings.turn_timeout_s)
        self._conversation = conversation
        if conversation is not None:
            journal = TurnJournal(lease, rules.turns, conversation.resume, conversation.joined, conversation.message.id)
            self._journal = journal
            self._updates = LiveUpdates(
                rules.client,
                lease.claim,
                standing=len(conversation.shown),
                shown_by=conversation.shown_by,
                steps=lambda: len(journal.entries),
                suspended=lambda: lease.suspended,
                reply_sent=journal.reply_sent,
                clock=rules.clock,
            )

    async def run(self) -> AgentResult:
        assert self._conversation is not None
        async with self._updates:
            result = await self.rules.agent(self._conversation, self._journal, self._updates)
            crash_point("after_agent")
        return result

    async def finish(self, result: AgentResult) -> str:
        conversation = self._conversation
        assert conversation is not None
        content = self._journal.pending_reply(result)
        # A program sent it with the first message of a session that can be continued.
        history = (*conversation.message.history, *result.entries)
        await self._commit("reply", "done", content, history, result=result)
        return "done"

    async def stop(self, stopped: TurnStopped) -> str:
        conversation = self._conversation
        assert conversation is not None
        await self._load_missed_joins(conversation)
        # What people have seen is the reply; history also says why it ends there. An attempt that
        # began again may not have passed the text of the one before it.
        partial = max(stopped.partial or self._updates.visible, conversation.begun, key=len)
        mark = INTERRUPTED if await self._journal.superseded() else STOPPED
        final = self._assistant_entry(f"{partial.rstrip()}\n\n{mark}".lstrip())
        first, *joined = conversation.entries
        settings = self.rules.settings
        steps = self._journal.entries
        saved = saved_history(
            first,
            steps,
            final,
            joined=joined,
            result_chars=settings.saved_result_chars,
            thought_chars=settings.saved_thought_chars,
        )
        history = (*conversation.message.history, *saved)
        await self._commit("stopped", "stopped", partial, history)
        return "stopped"

    async def give_up(self, reason: str, note: str = "", words: str = "") -> str:
        """Write a dead letter and an apology, so that the next message of the chat is answered."""
        conversation = self._conversation
        reference = secrets.token_hex(4)
        apology = f"Sorry, I {note}" if note else APOLOGIES.get(reason, APOLOGIES["error"])
        content = f"{apology} (reference {reference})"
        dead = DeadLetter(f"{reason} {reference}", self.work.record, words)
        history: tuple[TranscriptEntry, ...] = ()
        if conversation is not None:
            if conversation.message.metadata.get(ADMIN) == "1":
                content = with_reason(content, words)
            await self._load_missed_joins(conversation)
            final = self._assistant_entry(f"[no answer was given: {reason}]")
            asked = (*conversation.message.history, *conversation.entries)
            if reason == "model_fails":  # what made the model fail must not be in every later prompt
                asked = tuple([replace(entry, content=WITHHELD) for entry in asked])
            history = (*asked, final)
        if await self._commit("apology", "failed", content, history, dead):
            messages = len(conversation.messages) if conversation else 1
            log.error("dead letter", reason=reason, reference=reference, messages=messages, provider_says=words)
            metrics.DEAD_LETTERS.labels(reason).inc(messages)
        return "dead"

    async def refused(self, error: ModelError) -> str:
        return await self.give_up(error.kind if error.kind in APOLOGIES else "error", words=error.reason)

    async def still_waiting(self, error: ModelError, wait_s: float) -> None:
        waited_s = self.work.model_unavailable_ms / 1000 + wait_s
        # Others have met it before, so it is no slip of a moment: told at once.
        if waited_s > self.rules.settings.tell_s or isinstance(error, ModelClosed):
            # Not `self._updates`: it is closed.
            updates = LiveUpdates(self.rules.client, self.lease.claim)
            await updates.add_activity(why_waiting(error.kind, wait_s, alone=error.alone), note=True)

    async def _load_missed_joins(self, conversation: Conversation) -> None:
        """Load messages that joined the turn but never reached this process (the reply to `take`
        was lost, or the quarantine child got it), so that they are committed too."""
        claim = self.lease.claim
        if self.work.steers or self.work.joins_at_start:
            for number, record in await self.rules.turns.joined(claim):
                conversation.joined.setdefault(number, read_joined(claim, number, record))

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
        """End the turn. Return whether this call did, not an earlier one whose reply was lost."""
        rules = self.rules
        work = self.work
        conversation = self._conversation
        claim = self.lease.claim
        tokens: TokensUsed | None = None
        done: WorkDone | None = None
        if result is not None:
            done = self._work_done(result)
            used = result.usage
            prompt = result.usage.prompt_tokens
            completion = used.completion_tokens
            cached = used.cached_tokens
            if prompt or completion:  # otherwise no provider reported any
                tokens = TokensUsed(prompt=prompt, completion=completion, cached=cached)
        messages = () if conversation is None else conversation.messages
        mark = TurnMark(work.sources)
        if conversation is not None:
            mark = self._journal.mark
            mark.add_messages(messages)
            mark.add_ledger(self._journal.entries)
        if mark.sources:
            history = [replace(entry, sources=mark.sources) for entry in history]
        line = OutboundMessage(
            content=content,
            turn=work.n,
            in_reply_to=tuple([message.id for message in messages]),
            kind=kind,
            at=rules.clock.now_ms(),
            media=() if result is None else result.media,
            usage=tokens,
            unfinished=result is not None and result.outcome in ("round_cap", "budget", "length"),
            traceparent=link_joined(conversation),
            sources=mark.sources,
            failed=dead.reason.partition(" ")[0] if dead else "",
            refusal=dead.words if dead else "",
            takeovers=() if conversation is None else self._updates.takeovers,
            work=done,
            parts=self._journal.parts() if conversation is not None and conversation.message.channel == API else (),
        )
        crash_point("before_commit")
        committed = await rules.turns.commit(
            claim,
            sources=mark.own,
            history=history,
            lines=[line],
            event=TurnEvent(work.n, state, work.attempt),
            dead=dead,
            retry_for_s=STORE_PATIENCE_S,
        )
        crash_point("after_commit")
        if committed.first:
            # The wait for each message, joined ones included, unless no person waits for it: from
            # the clock of the gateway that accepted it to ours, as exact as both are, never below
            # 0.
            now_ms = rules.clock.now_ms()
            for message in messages:
                if not is_background(message):
                    metrics.ANSWER_SECONDS.labels(state).observe(max(0, now_ms - message.timestamp) / 1000)
        if committed.dropped:
            metrics.HISTORY_DROPPED.inc(committed.dropped)
            log.warning("history dropped", entries=committed.dropped)
        if committed.first and rules.on_commit is not None:
            try:
                await rules.on_commit(claim.session, committed, kind == "reply")
            except ShoalError as exc:  # the turn is over all the same
                log.warning("post-commit hook failed", error=type(exc).__name__)
        return committed.first

    def _work_done(self, result: AgentResult) -> WorkDone:
        calls = [one.tool_calls for one in self._journal.entries if isinstance(one, AssistantEntry)]
        final = result.entries[-1] if result.entries else None
        answer = final if isinstance(final, AssistantEntry) else self._assistant_entry("")
        return WorkDone(
            model=result.model,
            usd=result.usage.cost_usd,
            ms=round((self.rules.clock.monotonic() - self._began) * 1000),
            attempts=self.work.attempt,
            tools=sum(map(len, calls)),
            thoughts=any(isinstance(one, AssistantEntry) and one.reasoning for one in result.entries),
            context=answer.context,
            window=answer.window,
        )

    def _assistant_entry(self, content: str) -> AssistantEntry:
        return AssistantEntry(content=content, turn=self.work.n, at=self.rules.clock.now_ms())
