"""Streaming of replies to other code while they are generated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from worker.agent.hook import AgentHook, Iteration

Deliver = Callable[[str, int, str | None], Awaitable[None]]
"""Called with the session, the number of the turn, and more text; None ends a text.

The text after an end is a new one: that of the next round, or the same one again because its stream
broke. The last text of a turn is its answer, before the hooks' finalize_content.
"""

# Hooks are shared by all turns of a process. A context variable tells their streams apart, because
# every turn runs in a task of its own.
_running: ContextVar[tuple[str, int]] = ContextVar("running_turn", default=("", 0))


class StreamingHook(AgentHook):
    """Calls `deliver` with every delta and every end of a stream, for all turns with this hook.
    CompositeHook treats it like every hook: too slow or raising, it is reported and skipped."""

    wants_streaming = True
    changes_messages = False

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    async def before_iteration(self, context: Iteration) -> None:
        _running.set((context.session, context.turn))

    async def on_stream(self, delta: str) -> None:
        await self._deliver(*_running.get(), delta)

    async def on_stream_end(self) -> None:
        await self._deliver(*_running.get(), None)
