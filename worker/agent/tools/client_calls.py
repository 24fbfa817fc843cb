"""Functions that the program of a turn offers and runs itself: the model calls them, the turn waits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from shared.errors import TurnLimited, TurnStopped
from shared.messages.transcript import CallsEntry, ToolEntry
from worker.agent.history import StoredReply
from worker.agent.model.model import TokenUsage, ToolCallRequest, ToolSpec
from worker.agent.ports import Journal
from worker.agent.turn import AgentRunSpec

NAME_IN_USE: Final = "function_name"
"""The limit that TurnLimited names where a function has the name of a tool of the agent."""

CALLS_AT_ONCE: Final = 64
TOO_MANY: Final = f"Error: at most {CALLS_AT_ONCE} functions are called at once; call the others afterwards."


class ClientFunctions:
    """The functions that one turn's program offers."""

    def __init__(self, spec: AgentRunSpec, journal: Journal) -> None:
        self._spec = spec
        self._journal = journal
        self.specs: Final = tuple(
            ToolSpec(tool.name, tool.description, msgspec.json.decode(tool.parameters or b'{"type":"object"}'))
            for tool in spec.options.tools
        )
        self._names = frozenset(tool.name for tool in self.specs)

    def check_names(self, own: Iterable[ToolSpec]) -> None:
        """Raise TurnLimited for a function with the name of a tool of the agent."""
        in_use = sorted(self._names.intersection(tool.name for tool in own))
        if in_use:
            raise TurnLimited(
                NAME_IN_USE, f"the function {in_use[0]!r} has the name of a tool that the agent has; rename it"
            )

    def forced(self) -> tuple[ToolSpec, ...]:
        """Return the functions of which the first round must call one; none if it need not."""
        choice = self._spec.options.tool_choice
        return tuple(tool for tool in self.specs if choice in ("required", tool.name))

    def split(self, calls: Sequence[ToolCallRequest]) -> tuple[list[ToolCallRequest], list[ToolCallRequest]]:
        """Return the calls of the agent's tools, and those of the program. Arguments that cannot be
        repaired stay with the agent: the model hears of them at once."""
        theirs = [call for call in calls if call.name in self._names and call.arguments is not None]
        return [call for call in calls if call not in theirs], theirs

    async def results(
        self, calls: Sequence[ToolCallRequest], stored: StoredReply, usage: TokenUsage
    ) -> tuple[ToolEntry, ...]:
        """Return the results of the program for these calls of a stored reply. Raises TurnParked
        until they are there, and TurnStopped when none came and nobody would read the answer."""
        asked = calls[:CALLS_AT_ONCE]
        wait_s = self._spec.calls_wait_s
        # Results come all at once. One alone is ours: an earlier worker met the end of the time.
        if asked and not any(call.id in stored.results for call in asked):
            question = stored.asked or self._question(asked, stored)
            await self._journal.park_calls(question, wait_s=wait_s, usage=usage)
            if not self._spec.goes_on_unanswered:
                raise TurnStopped
        late = f"Error: the program did not answer this call within {wait_s:.0f} s."
        return tuple(
            [
                stored.results.get(call.id) or await self._unanswered(call, late if at < CALLS_AT_ONCE else TOO_MANY)
                for at, call in enumerate(calls)
            ]
        )

    def _question(self, asked: Sequence[ToolCallRequest], stored: StoredReply) -> CallsEntry:
        known = {call.id for call in asked}
        calls = tuple(call for call in stored.reply.tool_calls if call.id in known)
        identity = "\0".join([self._spec.session, *(call.id for call in calls)])
        id = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return CallsEntry(id=id, turn=self._spec.turn, calls=calls)

    async def _unanswered(self, call: ToolCallRequest, text: str) -> ToolEntry:
        entry = ToolEntry(
            call_id=call.id,
            name=call.name,
            content=text,
            turn=self._spec.turn,
            ok=False,
            at=self._spec.clock.now_ms(),
            client=True,
        )
        await self._journal.append(entry)
        return entry


def call_id(spec: AgentRunSpec, round_: int, place: int) -> str:
    """Return the id of a call that a program sees: it is the only one in its session, so that a
    late result never passes for that of another call."""
    identity = f"{spec.session}\0{spec.turn}\0{spec.entry.at}\0{round_}\0{place}"
    return f"call_{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
