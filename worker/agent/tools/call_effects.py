"""The effects of a tool call inside Shoal, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from shared.messages.effects import Effect
from shared.messages.transcript import EffectEntry
from worker.agent.ports import Journal
from worker.agent.turn import AgentRunSpec


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
        at, turn = self._spec.clock.now_ms(), self._spec.turn
        entry = EffectEntry(call_id=self._call_id, turn=turn, kind=effect.kind, to=effect.to, at=at)
        await self._journal.append(entry, effect)
        return True

    async def border(self) -> None:
        await self._journal.checkpoint()
