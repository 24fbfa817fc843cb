"""Running the tools of a reply, with a record from which a successor can continue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from shared.messages.effects import Effect
from shared.messages.transcript import EffectEntry, IntentEntry, ToolEntry
from shared.tracing import span
from shared.tracing.spans import EXECUTE_TOOL
from worker.agent.history import ApprovalState, StoredReply
from worker.agent.hook import ToolRun
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import FREE, ApprovalNeed, Files, Journal
from worker.agent.tools.text import shorten, valid_text
from worker.agent.tools.tool import ToolContext, ToolOutcome
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec

TRACED_CHARS: Final = 4096
"""Of arguments and of a result, where the settings ask for texts in traces."""


class CallEffects:
    """The effects of one call inside Shoal. `done` are those of an earlier attempt."""

    def __init__(self, spec: AgentRunSpec, journal: Journal, call_id: str, done: Sequence[EffectEntry]) -> None:
        self._spec = spec
        self._journal = journal
        self._call_id = call_id
        self._done = list(done)

    async def carry_out(self, effect: Effect) -> bool:
        if self._done:  # counting is enough: each attempt has the same effects in the same order
            self._done.pop(0)
            return False
        at = self._spec.clock.now_ms()
        turn = self._spec.turn
        if effect.to != self._spec.session:
            await self._spec.consent.settle()
            effect = effect.marked(self._spec.consent.sources)
        entry = EffectEntry(call_id=self._call_id, turn=turn, kind=effect.kind, to=effect.to, at=at)
        await self._journal.append(entry, effect)
        return True

    async def border(self) -> None:
        await self._journal.checkpoint()


class Actor:
    """Runs the tool calls of one turn."""

    def __init__(self, spec: AgentRunSpec, tools: Toolbox, journal: Journal) -> None:
        self._spec = spec
        self._tools = tools
        self._journal = journal
        # The batch of calls that runs now, set by `act`:
        self._stored: StoredReply
        self._files: Files = spec.files
        self._refused: Mapping[str, str] = {}
        self._needs: dict[str, ApprovalNeed] = {}
        self.runs: dict[str, ToolRun] = {}
        """Outcome and duration of each call that this worker ran, by its id."""

    async def act(
        self, calls: Sequence[ToolCallRequest], stored: StoredReply, *, seen: str | None = None
    ) -> tuple[ToolEntry, ...]:
        """Run the calls that have no result in `stored`. Return all results, in the calls' order.
        Calls run concurrently if each of them allows it, else one after the other. A call that an
        earlier worker began (it has an intent) runs again only if that does no harm. `seen` is set
        for calls that the model asked an earlier worker for: the version of the files it had seen.
        A call that needs approval raises TurnParked until it has it."""
        done = dict(stored.results)
        self._stored = stored
        self._files = self._spec.files if seen is None else self._spec.files.as_of(seen)
        waiting = [call for call in calls if call.id not in done]
        hook = self._spec.hook
        consent = self._spec.consent
        safety = self._tools.safety
        self._refused = await hook.before_execute_tools(tuple(waiting)) if waiting else {}
        # All needs are decided before the first call runs, by what the model had read then: the
        # result of one call must not change whether its neighbour needs approval.
        self._needs = {call.id: consent.need(call, safety(call.name)) for call in waiting}
        consented = all(need == FREE for need in self._needs.values())
        if consented and all(self._tools.can_run_concurrently(call.name) for call in waiting):
            await self._journal.checkpoint()
            together = await self._run_together(waiting)
            # Any of them may have taken along what another one read, and a successor may find only
            # one.
            read = tuple(dict.fromkeys(label for entry in together for label in entry.sources))
            for entry in (msgspec.structs.replace(one, sources=read) for one in together):
                done[entry.call_id] = entry
                await self._journal.append(entry)
        else:
            for call in waiting:
                await self._journal.checkpoint()
                done[call.id] = await self._run(call)
                await self._journal.append(done[call.id])
        for call in calls:
            consent.mark(done[call.id].sources)
        return tuple(done[call.id] for call in calls)

    async def _run_together(self, calls: Sequence[ToolCallRequest]) -> Sequence[ToolEntry]:
        """Return results in the calls' order. If one call ends the turn, the others are cancelled,
        and its exception is raised without a group around it."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run(call)) for call in calls]
        except BaseExceptionGroup as fault:
            raise fault.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _run(self, call: ToolCallRequest) -> ToolEntry:
        began = self._spec.clock.monotonic()
        # A name that a model invented may say anything: spans must not carry it.
        name = "unknown" if self._tools.safety(call.name) is None else call.name
        with span(EXECUTE_TOOL, name) as tool_span:
            if tool_span.on:
                tool_span.set("gen_ai.operation.name", "execute_tool")
                tool_span.set("gen_ai.tool.name", name)
                tool_span.set("gen_ai.tool.type", "function")
                tool_span.set("gen_ai.tool.call.id", call.id)
            if tool_span.texts:
                tool_span.set("gen_ai.tool.call.arguments", call.raw[:TRACED_CHARS])
            outcome = await self._outcome(call)
            if tool_span.texts:
                tool_span.set("gen_ai.tool.call.result", outcome.content[:TRACED_CHARS])
            tool_span.set("shoal.outcome", outcome.outcome)
            if not outcome.ok:
                tool_span.fail(outcome.outcome)
        await self._spec.consent.settle()
        self.runs[call.id] = ToolRun(outcome.outcome, self._spec.clock.monotonic() - began)
        return ToolEntry(
            call_id=call.id,
            name=call.name,
            content=outcome.content,
            turn=self._spec.turn,
            ok=outcome.ok,
            images=outcome.images,
            at=self._spec.clock.now_ms(),
            sources=self._spec.consent.pop_unwritten(),
        )

    async def _outcome(self, call: ToolCallRequest) -> ToolOutcome:
        spec = self._spec
        safety = self._tools.safety(call.name)
        intent = self._stored.intents.get(call.id)
        # Checked first: the lost worker may have run the call; nobody may let it run again.
        if intent is not None and safety not in ("read_only", "idempotent"):
            at = f"{datetime.fromtimestamp(intent.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
            why = (
                f"outcome unknown: the worker was lost at {at if intent.at else 'an unknown time'}; "
                "verify before repeating"
            )
            return ToolOutcome(why, "outcome_unknown")
        if (reason := self._refused.get(call.id)) is not None:
            return ToolOutcome(
                f"Error: {call.name!r} was refused: {valid_text(reason)}. Do not try it again.", "refused"
            )
        if why := await self._not_approved(call):
            return ToolOutcome(f"Error: {call.name!r} was not run: {why}", "refused")
        if safety == "unsafe":
            # A worker whose lease has expired must learn of it before the effect, not after.
            await self._journal.confirm()
        if safety in ("idempotent", "unsafe") and intent is None:
            # Durable before the tool starts: a successor then knows that it may have run.
            intent = IntentEntry(call_id=call.id, turn=spec.turn, at=spec.clock.now_ms())
            await self._journal.append(intent)
            if safety == "unsafe":
                # Only now may the tool run: a successor on another server must find the intent.
                await self._journal.secure()
        if safety is not None:
            # Before it runs: a long result is stored in the workspace, which the mark must reach
            # first.
            spec.consent.mark(spec.consent.brings(call))
        done = self._stored.effects.get(call.id, ())
        context = ToolContext(
            session=spec.session,
            turn=spec.turn,
            call_id=call.id,
            channel=spec.channel,
            chat_id=spec.chat_id,
            clock=spec.clock,
            timezone=spec.timezone,
            files=self._files,
            schedules=spec.schedules,
            outside=spec.outside,
            effects=CallEffects(spec, self._journal, call.id, done),
            mark_read=spec.consent.mark,
        )
        return await self._tools.call(call, context)

    async def _not_approved(self, call: ToolCallRequest) -> str:
        """Return why a call must not run, for the model; `""` if it may. Raises TurnParked."""
        consent = self._spec.consent
        need = self._needs[call.id]
        asked = self._stored.approvals.get(call.id)
        # A question in the ledger beats `need`: once a person was asked, the answer counts, even if
        # a successor with other settings would no longer ask.
        if asked is None:
            if need.kind == "free":
                return ""
            if need.kind == "refuse":
                return f"{need.why}."
            if await consent.stands(call):
                return ""
            asked = ApprovalState(consent.question(call, self._tools.safety(call.name)))
        if asked.decision is None:
            await self._journal.park(asked.question, wait_s=consent.wait_s)
            minutes = f"{consent.wait_s / 60:.0f} minutes"
            seconds = f"{consent.wait_s:.0f} seconds"
            return (
                f"it needs the user's yes, and nobody answered within "
                f"{minutes if consent.wait_s >= 120 else seconds}. "
                "Do not try it again by yourself; say what you wanted to do."
            )
        if not asked.decision.yes:
            return "the user said no. Do not try it again; go on without it, or ask what to do instead."
        # The person agreed to exact arguments; anything else would run without approval.
        if not consent.covers(asked.question, call):
            return "its arguments are not those that the user said yes to."
        return ""


HINT_CHARS: Final = 40


def tool_hint(calls: Sequence[ToolCallRequest]) -> str:
    """Return the calls as a line for people: `calculate("2+2"), current_time()`."""
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
