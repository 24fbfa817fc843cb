"""Acting: running the tools that a reply asks for, with a record that a successor can go on from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from shared.clock import Clock
from shared.messages.effects import Effect
from shared.messages.transcript import EffectEntry, IntentEntry, ToolEntry
from shared.tracing import Span, span
from shared.tracing.spans import EXECUTE_TOOL
from worker.agent.consent import FREE, Asked, Need, withheld
from worker.agent.hook import AgentHook, ToolRun
from worker.agent.journal import Journal
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.tool import Files, Outcome, Toolbox, ToolContext, ToolOutcome, shorten, valid_text
from worker.agent.turn import AgentRunSpec

HINT_CHARS: Final = 40


class Actor:
    """Runs the tool calls of one turn."""

    def __init__(self, spec: AgentRunSpec, tools: Toolbox, journal: Journal, hook: AgentHook, clock: Clock) -> None:
        self._spec = spec
        self._tools = tools
        self._journal = journal
        self._hook = hook
        self._clock = clock
        self._files: Files = spec.files
        self._effects: Mapping[str, Sequence[EffectEntry]] = {}
        self._asked: Mapping[str, Asked] = {}
        self._needs: dict[str, Need] = {}
        self.runs: dict[str, ToolRun] = {}
        """How each call went that this worker ran, by its id."""

    async def act(
        self,
        calls: Sequence[ToolCallRequest],
        intents: Mapping[str, IntentEntry],
        results: Mapping[str, ToolEntry],
        effects: Mapping[str, Sequence[EffectEntry]] = {},
        *,
        asked: Mapping[str, Asked] = {},
        seen: str | None = None,
    ) -> tuple[ToolEntry, ...]:
        """Run the calls that have no result yet; answer all results in the order of the calls.

        Calls run together when each may run beside others, else one after the other. A call that an
        earlier worker began (it has an intent) runs again only if that does no harm. `seen` is set
        for calls that the model asked an earlier worker for: what it had seen of the files by then.
        A call that needs a person's yes runs when it has it; until then the turn is given up
        (TurnParked). `asked` are those that a person was asked about.
        """
        done = dict(results)
        self._effects, self._asked = effects, asked
        self._files = self._spec.files if seen is None else self._spec.files.as_of(seen)
        waiting = [call for call in calls if call.id not in done]
        refused = await self._hook.before_execute_tools(tuple(waiting)) if waiting else {}
        # By what the model had read when it asked for them: the results of calls beside them are no
        # part of that.
        self._needs = {call.id: self._spec.consent.need(call, self._tools.safety(call.name)) for call in waiting}
        consented = all(need == FREE for need in self._needs.values())
        if consented and all(self._tools.concurrent(call.name) for call in waiting):
            await self._journal.checkpoint()
            for entry in await self._together(waiting, refused, intents):
                done[entry.call_id] = entry
                await self._journal.append(entry)
        else:
            for call in waiting:
                await self._journal.checkpoint()
                done[call.id] = await self._call(call, refused, intents)
                await self._journal.append(done[call.id])
        for call in calls:
            self._spec.consent.heard(call)
        return tuple(done[call.id] for call in calls)

    async def _together(
        self, calls: Sequence[ToolCallRequest], refused: Mapping[str, str], intents: Mapping[str, IntentEntry]
    ) -> Sequence[ToolEntry]:
        """Results in the order of the calls. What ends the turn in one of them cancels the others
        and goes up bare."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._call(call, refused, intents)) for call in calls]
        except BaseExceptionGroup as fault:
            raise fault.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _call(
        self, call: ToolCallRequest, refused: Mapping[str, str], intents: Mapping[str, IntentEntry]
    ) -> ToolEntry:
        began = self._clock.monotonic()
        # A name that is none of ours is a model's invention, and may say anything.
        name = "unknown" if self._tools.safety(call.name) is None else call.name
        with span(EXECUTE_TOOL, name) as now:
            if now.on:
                _tell(now, name, call.id)
            outcome = await self._outcome(call, refused.get(call.id), intents.get(call.id))
            if now.on:
                _told(now, outcome.outcome)
        self.runs[call.id] = ToolRun(outcome.outcome, self._clock.monotonic() - began)
        return ToolEntry(
            call_id=call.id,
            name=call.name,
            content=outcome.content,
            turn=self._spec.turn,
            ok=outcome.ok,
            images=outcome.images,
            at=self._clock.now_ms(),
        )

    async def _outcome(self, call: ToolCallRequest, refusal: str | None, intent: IntentEntry | None) -> ToolOutcome:
        safety = self._tools.safety(call.name)
        if intent is not None and safety not in ("read_only", "idempotent"):
            return ToolOutcome(_outcome_unknown(intent), "outcome_unknown")
        if refusal is not None:
            reason = valid_text(refusal)
            return ToolOutcome(f"Error: {call.name!r} was refused: {reason}. Do not try it again.", "refused")
        without = await withheld(
            self._spec.consent, self._journal, call, self._needs.get(call.id, FREE), self._asked.get(call.id)
        )
        if without:
            return ToolOutcome(without, "refused")
        if safety == "unsafe":
            await self._journal.confirm()
        if safety in ("idempotent", "unsafe") and intent is None:
            await self._journal.append(IntentEntry(call_id=call.id, turn=self._spec.turn, at=self._clock.now_ms()))
        return await self._tools.call(call, self._context(call))

    def _context(self, call: ToolCallRequest) -> ToolContext:
        return ToolContext(
            session=self._spec.session,
            turn=self._spec.turn,
            call_id=call.id,
            channel=self._spec.channel,
            chat_id=self._spec.chat_id,
            clock=self._clock,
            timezone=self._spec.timezone,
            files=self._files,
            schedules=self._spec.schedules,
            outside=self._spec.outside,
            effects=CallEffects(
                self._journal, call.id, self._spec.turn, self._effects.get(call.id, ()), clock=self._clock
            ),
        )


class CallEffects:
    """What one call does inside Shoal. `done` are the effects that an earlier attempt at the same
    call carried out."""

    def __init__(self, journal: Journal, call_id: str, turn: int, done: Sequence[EffectEntry], *, clock: Clock) -> None:
        self._journal = journal
        self._call_id = call_id
        self._turn = turn
        self._done = list(done)
        self._clock = clock

    async def carry_out(self, effect: Effect) -> bool:
        if self._done:
            self._done.pop(0)
            return False
        entry = EffectEntry(
            call_id=self._call_id,
            turn=self._turn,
            kind=effect.kind,
            to=effect.to,
            at=self._clock.now_ms(),
        )
        await self._journal.append(entry, effect)
        return True

    async def border(self) -> None:
        await self._journal.checkpoint()


def _tell(now: Span, name: str, call_id: str) -> None:
    now.set("gen_ai.operation.name", "execute_tool")
    now.set("gen_ai.tool.name", name)
    now.set("gen_ai.tool.type", "function")
    now.set("gen_ai.tool.call.id", call_id)


def _told(now: Span, outcome: Outcome) -> None:
    now.set("shoal.outcome", outcome)
    if outcome != "ok":
        now.fail(outcome)


def tool_hint(calls: Sequence[ToolCallRequest]) -> str:
    """What is about to happen, for people: `calculate("2+2"), current_time()`."""
    return ", ".join(f"{call.name}({_first_argument(call)})" for call in calls)


def _first_argument(call: ToolCallRequest) -> str:
    if call.arguments is None:
        return "…"
    for value in call.arguments.values():
        if isinstance(value, str):
            return f'"{shorten(value, HINT_CHARS)}"'
        try:
            return shorten(msgspec.json.encode(value).decode(), HINT_CHARS)
        except (TypeError, ValueError, RecursionError):
            return "…"
    return ""


def _outcome_unknown(intent: IntentEntry) -> str:
    when = f"{datetime.fromtimestamp(intent.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if intent.at else "an unknown time"
    return f"outcome unknown: the worker was lost at {when}; verify before repeating"
