"""The state of one run of the agent, and the steps that the loop is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from shared.errors import ModelError
from shared.messages.transcript import ToolEntry, TranscriptEntry
from worker.agent.history import StoredReply
from worker.agent.hook import IterationDone
from worker.agent.limits import Meter
from worker.agent.model.answer_form import again_messages, cut_at_stop, fit_schema
from worker.agent.model.ask import Asker, ModelReply
from worker.agent.model.context_window import ContextWindow
from worker.agent.model.model import Model
from worker.agent.model.seam import RESTART_CHARS
from worker.agent.ports import FollowupMessage, Journal
from worker.agent.steps import TurnSteps
from worker.agent.tools.act import Actor, tool_hint
from worker.agent.tools.client_calls import ClientFunctions
from worker.agent.tools.text import valid_text
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec, TurnOutcome

NO_ANSWER: Final = "I have no answer to that, sorry. Please try again, perhaps in other words."
FILTERED: Final = "The model's provider has stopped this answer: its content filter objected."
NOT_FINISHED: Final = (
    "I have to stop here: this is not finished, and the limit of {rounds} steps for one message "
    "is reached. Ask me to go on, or for a smaller part of it."
)


class AgentRun:
    """The model's view of the turn, the kept steps, and the cost of both, from round to round."""

    def __init__(self, spec: AgentRunSpec, model: Model, tools: Toolbox, journal: Journal) -> None:
        self._spec = spec
        self._model_name = model.name
        self._journal = journal
        self._meter = meter = Meter(spec.allowance)
        self._theirs = theirs = ClientFunctions(spec, journal)
        theirs.check_names(tools.specs())
        offered = (*tools.specs(), *theirs.specs) if theirs.specs else tools.specs()
        self._asker = Asker(spec, model, offered, journal, meter)
        self._actor = Actor(spec, tools, journal)
        self._steps = TurnSteps(spec)
        for call in self._steps.calls():
            if tools.safety(call.name) is not None:  # the release before wrote no sources
                spec.consent.mark(spec.consent.brings(call))
        for entry in self._steps.entries:
            spec.consent.mark(entry.sources)
        self._window = ContextWindow(spec, offered, journal, meter)
        self._window.add(self._steps.entries)
        self._asker.before = before = self._steps.answered_text
        opening = f"{before}\n\n" if before else ""
        # Of a short text little is gained, and it does not show whether a model begins again.
        usable = spec.begun.startswith(opening) and len(spec.begun) - len(opening) >= RESTART_CHARS
        self._begun = spec.begun[len(opening) :] if usable else ""
        self._resumed = False
        self._formed = ""  # the answer, once it fits its schema
        self._asked_for_form = False
        self._seconds = 0.0

    @property
    def shown(self) -> str:
        return self._asker.shown

    @property
    def rounds(self) -> int:
        return self._steps.rounds

    def resume_reply(self) -> ModelReply | None:
        """Return the reply that an earlier worker stored and did not finish: no model is asked."""
        reply = self._steps.stored
        self._resumed = reply is not None
        return reply

    async def claim_followups(self) -> None:
        """Let the messages that arrived in the meantime join the turn."""
        self._add_followups(await self._spec.followups.claim())

    async def followed_up(self, answer: ModelReply) -> bool:
        """Return whether messages arrived during this answer: then the turn goes on with them."""
        if not self._spec.followups.open or self.rounds >= self._spec.max_rounds:
            return False
        # The answer is stored before the messages are claimed: a successor that finds them in the
        # ledger must find the answer in front of them.
        stored = self._steps.pop_stored() or await self._store(answer)
        followups = await self._spec.followups.claim()
        if not followups:
            return False
        await self._report_round(answer)
        self._add([stored.reply])
        self._asker.before = self._steps.answered_text
        self._add_followups(followups)
        return True

    def _add_followups(self, messages: Sequence[FollowupMessage]) -> None:
        self._begun = "" if messages else self._begun  # it was written without them
        self._steps.entries += [message.entry for message in messages]
        self._window.add_followups(messages)

    def _add(self, entries: Sequence[TranscriptEntry]) -> None:
        self._steps.entries += entries
        self._window.add(entries)

    async def ask(self) -> ModelReply:
        """Ask the model for the next reply. A prompt that it refuses is repaired once."""
        self._steps.rounds += 1
        begun = self._begun
        self._begun = ""
        await self._window.begin(self.rounds)
        began = self._spec.clock.monotonic()
        self._asker.forced = self._theirs.forced() if self.rounds == 1 else ()
        try:
            reply = await self._asker.ask(self._window.messages, begun)
        except ModelError as exc:
            # A provider may accept no conversation that goes on after a reply: then it begins
            # again.
            if not await self._window.repair(exc) and not (begun and exc.kind == "bad_request"):
                raise
            reply = await self._asker.ask(self._window.messages)
        self._seconds = self._spec.clock.monotonic() - began
        return self._steps.with_unique_ids(reply, self._theirs.split(reply.calls)[1])

    async def asked_for_form(self, reply: ModelReply) -> bool:
        """Return whether the answer does not fit its schema and is asked for again, with the
        reason. Raises ModelError for the second such answer. A limit of the client may cut any
        answer."""
        if not self._spec.options.schema or self._is_cut(reply):
            return False
        self._formed, problem = fit_schema(reply.text, self._spec.options.schema)
        if not problem:
            return False
        if self._asked_for_form or self.rounds >= self._spec.max_rounds:
            text = "the model's answer does not fit the schema that was asked for"
            raise ModelError("invalid_output", text, retryable=False, reason=problem)
        self._asked_for_form = True
        await self._report_round(reply)
        # Not a step of the turn: a successor asks for the answer itself, and history has one.
        self._window.messages += again_messages(reply.text, problem)
        return True

    def _is_cut(self, reply: ModelReply) -> bool:
        return bool(self._spec.options.max_tokens) and reply.finish_reason == "length"

    async def act(self, reply: ModelReply) -> None:
        """Store the reply, run its tools, and add both to the next prompt. The program runs its own
        functions once the agent's tools have their results."""
        resumed = self._steps.pop_stored()
        stored = resumed or await self._store(reply)
        hint = tool_hint(reply.calls)
        await self._spec.progress.add_activity(f"{reply.text}\n{hint}" if reply.text else hint)
        seen = resumed.reply.seen if resumed else None
        own, theirs = self._theirs.split(reply.calls)
        results = await self._actor.act(own, stored, seen=seen)
        if theirs:
            answered = await self._theirs.results(theirs, stored, self._meter.used)
            for entry in answered:
                self._spec.consent.mark(entry.sources)
            done = {entry.call_id: entry for entry in (*results, *answered)}
            results = tuple(done[call.id] for call in reply.calls)
        self._add([stored.reply, *results])
        await self._report_round(reply, results)

    async def _store(self, reply: ModelReply) -> StoredReply:
        stored = StoredReply(self._steps.assistant_entry(reply.text or None, reply))
        await self._journal.append(stored.reply)
        return stored

    async def finish(self, reply: ModelReply) -> AgentResult:
        await self._report_round(reply)
        if reply.finish_reason == "content_filter":
            return await self._end(reply, "\n\n".join(filter(None, [reply.text, FILTERED])), "done")
        if reply.text or self._steps.answered_text:
            text = self._formed or cut_at_stop(reply.text, self._spec.options.stop)
            return await self._end(reply, text, "length" if self._is_cut(reply) else "done")
        return await self._end(reply, NO_ANSWER, "empty")

    async def give_up(self, reply: ModelReply) -> AgentResult:
        """End the turn with the best text so far and a note that it is not finished. The tools of
        `reply` do not run: the model would not see their results."""
        await self._report_round(reply)
        note = NOT_FINISHED.format(rounds=self._spec.max_rounds)
        return await self._end(reply, self._steps.best_text(reply.text, note), "round_cap")

    async def refuse(self, refusal: str) -> AgentResult:
        """End the turn with the best text so far and the reason why no model is asked again."""
        return await self._end(ModelReply(text=""), self._steps.best_text("", refusal), "budget")

    async def _end(self, reply: ModelReply, content: str, outcome: TurnOutcome) -> AgentResult:
        before = "" if self._formed else self._steps.answered_text
        content = "\n\n".join(filter(None, [before, content]))
        content = valid_text(await self._spec.hook.finalize_content(content) or content)
        if self._meter.warning and outcome != "budget" and not self._formed:
            content = f"{content}\n\n{self._meter.warning}"
        final = self._steps.assistant_entry(content, reply, with_calls=False)
        if window := self._spec.window_tokens:
            final = replace(final, context=self._meter.last.total_tokens, window=window)
        return AgentResult(
            content=content,
            entries=self._steps.history_entries(final),
            rounds=self.rounds,
            usage=self._meter.used,
            outcome=outcome,
        )

    async def _report_round(self, reply: ModelReply, results: tuple[ToolEntry, ...] = ()) -> None:
        runs = self._actor.runs
        done = IterationDone(
            session=self._spec.session,
            turn=self._spec.turn,
            round=self.rounds,
            model=self._model_name,
            finish_reason=reply.finish_reason,
            usage=self._meter.pop_usage(),
            seconds=self._seconds,
            calls=reply.calls,
            results=results,
            runs={entry.call_id: runs[entry.call_id] for entry in results if entry.call_id in runs},
            resumed=self._resumed,
        )
        await self._spec.hook.after_iteration(done)
