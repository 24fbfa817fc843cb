"""The state of one run of the agent, and the steps that the loop is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.clock import Clock
from shared.errors import ModelError
from shared.messages.transcript import ToolEntry
from worker.agent.followups import Followups, Said
from worker.agent.hook import AgentHook, IterationDone
from worker.agent.journal import Journal, Show
from worker.agent.limits import Allowance, Meter
from worker.agent.model.ask import Asker, Reply
from worker.agent.model.compact import Compact
from worker.agent.model.context_window import View
from worker.agent.model.model import Model
from worker.agent.steps import Steps
from worker.agent.tools.act import Actor, tool_hint
from worker.agent.tools.tool import Toolbox, valid_text
from worker.agent.turn import AgentResult, AgentRunSpec, StoredReply, TurnOutcome

NO_ANSWER: Final = "I have no answer to that, sorry. Please try again, perhaps in other words."
NOT_FINISHED: Final = (
    "I have to stop here: this is not finished, and the limit of {rounds} steps for one message is reached. "
    "Ask me to go on, or for a smaller part of it."
)


class Run:
    """What the model sees, the steps that are kept, and what both cost, from one round to the
    next."""

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
        allowance: Allowance,
        followups: Followups,
    ) -> None:
        self._spec = spec
        self._model_name = model.name
        self._journal = journal
        self._hook = hook
        self._show = show
        self._clock = clock
        self._meter = meter = Meter(allowance)
        self._asker = Asker(
            model,
            tools.specs(),
            journal,
            hook=hook,
            show=show,
            meter=meter,
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            continuations=spec.continuations,
        )
        self._actor = Actor(spec, tools, journal, hook, clock)
        self._steps = Steps(spec)
        for call in self._steps.calls():
            spec.consent.heard(call)
        self._view = View(spec, tools.specs(), journal, hook=hook, meter=meter, compact=compact, now_ms=clock.now_ms())
        self._view.add(self._steps.entries)
        self._followups = followups
        self._asker.before = self._steps.answered
        self._resumed = False
        self._seconds = 0.0

    @property
    def shown(self) -> str:
        return self._asker.shown.rstrip() or self._asker.before

    @property
    def rounds(self) -> int:
        return self._steps.rounds

    def take_stored(self) -> Reply | None:
        """The reply that an earlier worker stored and did not finish: it is not asked for again."""
        reply = self._steps.stored
        self._resumed = reply is not None
        return reply

    async def listen(self) -> None:
        """Messages that came meanwhile join the turn."""
        self._hear(await self._followups.take())

    async def goes_on_behind(self, answer: Reply) -> bool:
        """Whether messages came while the model said this: then it is not the end, and they are
        answered, too."""
        if not self._followups.open or self.rounds >= self._spec.max_rounds:
            return False
        stored = self._steps.take()
        if stored is None:
            stored = StoredReply(self._steps.entry(answer.text or None, answer, self._clock.now_ms()), {}, {})
            await self._journal.append(stored.reply)
        said = await self._followups.take()
        if not said:
            return False
        await self._after(answer)
        self._steps.add([stored.reply])
        self._view.add([stored.reply])
        self._asker.before = self._steps.answered
        self._hear(said)
        return True

    def _hear(self, said: Sequence[Said]) -> None:
        self._steps.add([one.entry for one in said])
        self._view.hear(said)

    async def ask(self) -> Reply:
        self._steps.rounds += 1
        await self._view.begin(self.rounds)
        began = self._clock.monotonic()
        try:
            reply = await self._asker.ask(self._view.messages)
        except ModelError as exc:
            if not await self._view.mended(exc):
                raise
            reply = await self._asker.ask(self._view.messages)
        self._seconds = self._clock.monotonic() - began
        return msgspec.structs.replace(reply, calls=self._steps.named(reply.calls)) if reply.calls else reply

    async def act(self, reply: Reply) -> None:
        """Store the reply, run its tools, and add both to what the model sees next."""
        stored = self._steps.take()
        seen = None if stored is None else stored.reply.seen
        if stored is None:
            stored = StoredReply(self._steps.entry(reply.text or None, reply, self._clock.now_ms()), {}, {})
            await self._journal.append(stored.reply)
        hint = tool_hint(reply.calls)
        await self._show.progress(f"{reply.text}\n{hint}" if reply.text else hint)
        results = await self._actor.act(
            reply.calls, stored.intents, stored.results, stored.effects, asked=stored.asked, seen=seen
        )
        self._steps.add([stored.reply, *results])
        self._view.add([stored.reply, *results])
        await self._after(reply, results)

    async def finish(self, reply: Reply) -> AgentResult:
        await self._after(reply)
        said = reply.text or self._steps.answered
        return await self._end(reply, reply.text or ("" if said else NO_ANSWER), "done" if said else "empty")

    async def give_up(self, reply: Reply) -> AgentResult:
        """The best result so far, and that it is not finished. The tools asked for last do not run:
        the model would not see their results."""
        await self._after(reply)
        note = NOT_FINISHED.format(rounds=self._spec.max_rounds)
        return await self._end(reply, self._steps.best(reply.text, note), "round_cap")

    async def refuse(self, refusal: str) -> AgentResult:
        """The best result so far, and why the model is not asked again."""
        return await self._end(Reply(text=""), self._steps.best("", refusal), "budget")

    async def _end(self, reply: Reply, content: str, outcome: TurnOutcome) -> AgentResult:
        content = "\n\n".join(filter(None, [self._steps.answered, content]))
        content = valid_text(await self._hook.finalize_content(content) or content)
        if self._meter.warning and outcome != "budget":
            content = f"{content}\n\n{self._meter.warning}"
        final = self._steps.entry(content, reply, self._clock.now_ms(), with_calls=False)
        return AgentResult(
            content=content,
            entries=self._steps.saved(final),
            rounds=self.rounds,
            usage=self._meter.used,
            outcome=outcome,
        )

    async def _after(self, reply: Reply, results: tuple[ToolEntry, ...] = ()) -> None:
        runs = self._actor.runs
        done = IterationDone(
            session=self._spec.session,
            turn=self._spec.turn,
            round=self.rounds,
            model=self._model_name,
            finish_reason=reply.finish_reason,
            usage=self._meter.take(),
            seconds=self._seconds,
            calls=reply.calls,
            results=results,
            runs={entry.call_id: runs[entry.call_id] for entry in results if entry.call_id in runs},
            resumed=self._resumed,
        )
        await self._hook.after_iteration(done)
