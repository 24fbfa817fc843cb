"""The agent: ask, act, append, until there is an answer."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import TurnStopped
from shared.messages.transcript import AssistantEntry, IntentEntry, LedgerEntry, ToolEntry, TranscriptEntry
from worker.agent.act import Actor, tool_hint
from worker.agent.ask import Asker, Reply, requested_call, stored_call, unique_ids
from worker.agent.hook import NO_HOOK, AgentHook, Iteration, IterationDone
from worker.agent.journal import SILENT, Journal, Show
from worker.agent.limits import Budget, Compact, estimate_tokens
from worker.agent.model import Model, Usage
from worker.agent.prompt import build_messages, clean, to_message
from worker.agent.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec, StoredReply, TurnOutcome, paired, resume_point, saved_history

NO_ANSWER: Final = "I have no answer to that, sorry. Please try again, perhaps in other words."
NOT_FINISHED: Final = (
    "I have to stop here: this is not finished, and the limit of {rounds} steps for one message is reached. "
    "Ask me to go on, or for a smaller part of it."
)


async def run_agent(
    spec: AgentRunSpec,
    model: Model,
    tools: Toolbox,
    journal: Journal,
    *,
    hook: AgentHook = NO_HOOK,
    show: Show = SILENT,
    clock: Clock = SYSTEM_CLOCK,
    compact: Compact | None = None,
) -> AgentResult:
    """Carry one turn to its end, from its beginning or from where the ledger in `spec.resume` shows it stood.

    Knows no channel and no queue. Hooks that are not to be trusted come in a CompositeHook. Raises ModelError when the
    model stays away, LeaseLost, and a TurnEnded when the turn ends before its reply; TurnStopped carries the text that
    was shown. A cancelled turn leaves its ledger ready for a successor.
    """
    turn = _Turn(spec, model, tools, journal, hook, show, clock, compact)
    try:
        while True:
            reply = turn.take_stored() or await turn.ask()
            if not reply.calls:
                return await turn.finish(reply)
            if turn.rounds >= spec.max_rounds:
                return await turn.give_up(reply)
            await turn.act(reply)
    except TurnStopped as stopped:
        raise TurnStopped(stopped.partial or turn.shown) from stopped


class _Turn:
    """The state of one run: the messages for the model, the steps for the ledger, and what both cost."""

    def __init__(
        self,
        spec: AgentRunSpec,
        model: Model,
        tools: Toolbox,
        journal: Journal,
        hook: AgentHook,
        show: Show,
        clock: Clock,
        compact: Compact | None,
    ) -> None:
        self._spec = spec
        self._model_name = model.name
        self._specs = tools.specs()
        self._journal = journal
        self._hook = hook
        self._show = show
        self._clock = clock
        self._compact = compact
        self._budget = Budget(spec.context_tokens, spec.max_tokens)
        self._asker = Asker(
            model,
            self._specs,
            journal,
            hook=hook,
            show=show,
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
        )
        self._actor = Actor(spec, tools, journal, hook, clock)
        self._messages = build_messages(spec, clock.now_ms())
        self._steps: list[TranscriptEntry] = []
        self._call_ids: set[str] = set()
        self._stored: StoredReply | None = None
        self._asked_at = clock.monotonic()
        self._usage = Usage()
        self.rounds = 0
        self._restore(spec.resume)

    @property
    def shown(self) -> str:
        return self._asker.shown

    def take_stored(self) -> Reply | None:
        """The reply that an earlier worker stored and did not finish: it is not asked for again."""
        if self._stored is None:
            return None
        said = self._stored.reply
        return Reply(text=said.content or "", calls=tuple(map(requested_call, said.tool_calls)))

    async def ask(self) -> Reply:
        self.rounds += 1
        context = Iteration(self._spec.session, self._spec.turn, self.rounds, self._messages)
        await self._hook.before_iteration(context)
        self._messages = [clean(message) for message in context.messages]
        if self._compact is not None and self._budget.exceeded_by(estimate_tokens(self._messages, self._specs)):
            self._messages = await self._compact(self._messages)
        self._asked_at = self._clock.monotonic()
        reply = await self._asker.ask(self._messages)
        self._usage += reply.usage
        return msgspec.structs.replace(reply, calls=unique_ids(reply.calls, self._call_ids, self.rounds))

    async def act(self, reply: Reply) -> None:
        """Store the reply, run its tools, and add both to what the model sees next."""
        seconds = self._clock.monotonic() - self._asked_at
        stored, self._stored = self._stored, None
        if stored is None:
            stored = StoredReply(self._entry(reply.text or None, reply), {}, {})
            await self._journal.append(stored.reply)
        self._steps.append(stored.reply)
        self._messages.append(to_message(stored.reply))
        hint = tool_hint(reply.calls)
        await self._show.progress(f"{reply.text}\n{hint}" if reply.text else hint)
        results = await self._actor.act(reply.calls, stored.intents, stored.results)
        self._steps.extend(results)
        self._messages.extend(map(to_message, results))
        await self._hook.after_iteration(self._done(reply, seconds, results))

    async def finish(self, reply: Reply) -> AgentResult:
        return await self._end(reply, reply.text or NO_ANSWER, "done" if reply.text else "empty")

    async def give_up(self, reply: Reply) -> AgentResult:
        """The best result so far, and that it is not finished. The tools asked for last do not run: the model would
        not see their results."""
        said = [reply.text, *(step.content for step in reversed(self._steps) if isinstance(step, AssistantEntry))]
        best = next((text for text in said if text), "")
        note = NOT_FINISHED.format(rounds=self._spec.max_rounds)
        return await self._end(reply, f"{best}\n\n{note}" if best else note, "round_cap")

    async def _end(self, reply: Reply, content: str, outcome: TurnOutcome) -> AgentResult:
        content = await self._hook.finalize_content(content) or content
        await self._hook.after_iteration(self._done(reply, self._clock.monotonic() - self._asked_at, ()))
        return AgentResult(
            content=content,
            entries=saved_history(self._spec.entry, self._steps, self._entry(content, reply, with_calls=False)),
            rounds=self.rounds,
            usage=self._usage,
            outcome=outcome,
        )

    def _restore(self, ledger: tuple[LedgerEntry, ...]) -> None:
        """Stand where an earlier worker stood: behind its last complete round, with the stored reply at hand."""
        replies = [at for at, step in enumerate(ledger) if isinstance(step, AssistantEntry)]
        point = resume_point(ledger)
        if point is None:
            return
        self.rounds = len(replies)
        self._call_ids.update(
            call.id for step in ledger if isinstance(step, AssistantEntry) for call in step.tool_calls
        )
        behind = len(ledger) if point.answered else replies[-1]
        self._stored = None if point.answered else point
        self._steps = [*paired(step for step in ledger[:behind] if not isinstance(step, IntentEntry))]
        self._messages.extend(map(to_message, self._steps))

    def _entry(self, content: str | None, reply: Reply, *, with_calls: bool = True) -> AssistantEntry:
        return AssistantEntry(
            content=content,
            turn=self._spec.turn,
            tool_calls=tuple(map(stored_call, reply.calls)) if with_calls else (),
            reasoning=reply.reasoning,
            at=self._clock.now_ms(),
        )

    def _done(self, reply: Reply, seconds: float, results: tuple[ToolEntry, ...]) -> IterationDone:
        return IterationDone(
            session=self._spec.session,
            turn=self._spec.turn,
            round=self.rounds,
            model=self._model_name,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            seconds=seconds,
            calls=reply.calls,
            results=results,
        )
