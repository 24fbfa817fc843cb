"""Progress of a subagent, for lists and status pages: its rounds and their cost."""

from __future__ import annotations

import contextlib

from shared.errors import LeaseLost, RedisAway, Refused
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import Claim
from worker.agent.hook import AgentHook, IterationDone


class SubagentProgress(AgentHook):
    """Records rounds and tokens after each round. Losing a record costs only a number in a list."""

    def __init__(self, children: Subagents, claim: Claim) -> None:
        self._children = children
        self._claim = claim

    async def after_iteration(self, done: IterationDone) -> None:
        tokens = done.usage.prompt_tokens + done.usage.completion_tokens
        with contextlib.suppress(LeaseLost, RedisAway, Refused):
            await self._children.save_progress(self._claim, rounds=done.round, tokens=tokens)
