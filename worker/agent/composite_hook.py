"""Several hooks as one: none of them can stop a turn or leave half of its work."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from worker.agent.hook import AgentHook, Iteration, IterationDone, check_messages, checked_refusals, checked_text
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.tool import Report, ignore_report

T = TypeVar("T")


async def within(limit_s: float, call: Awaitable[T]) -> T:
    """Await a call and return its result. Raises TimeoutError after more than `limit_s` of waiting.
    Most calls of hooks never wait, and the timer of `asyncio.timeout` costs several times what they
    do. So a coroutine makes its first step without one. A timer could not stop that step anyway."""
    if not isinstance(call, types.CoroutineType):
        async with asyncio.timeout(limit_s):
            return await call
    # Run the coroutine up to its first real wait. It may already be done by then, as most are.
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    async with asyncio.timeout(limit_s):
        return await _resume(call, waits_for)


@types.coroutine
def _resume(call: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Continue a coroutine that has begun and waits, as `await` does with a new one."""
    while True:
        try:
            came = yield waits_for
        except BaseException as exc:  # a cancellation must reach the coroutine, as with await
            step = partial(call.throw, exc)
        else:
            step = partial(call.send, came)
        try:
            waits_for = step()
        except StopIteration as done:
            answer: T = done.value
            return answer


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, and not only awaited a cancelled one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


Check = Callable[[Any], Any]
CALL_LIMIT_S: Final = 1.0
MUTE_S: Final = 60.0  # without deltas for a hook that was too slow for one: a reply has hundreds


class CompositeHook(AgentHook):
    """Several hooks as one, called in the order given. A method that a hook does not override costs
    nothing. A hook that raises or is too slow is reported and skipped, and none of its work stays:
    neither half-changed messages nor an answer of the wrong type."""

    def __init__(
        self,
        hooks: Iterable[AgentHook] = (),
        *,
        report: Report = ignore_report,
        call_limit_s: float = CALL_LIMIT_S,
    ) -> None:
        self._report = report
        self._call_limit_s = call_limit_s
        every = tuple(hooks)
        self._before_iteration = _hooks_with("before_iteration", every)
        self._before_tools = _hooks_with("before_execute_tools", every)
        self._after_iteration = _hooks_with("after_iteration", every)
        self._finalize = _hooks_with("finalize_content", every)
        self._streaming = tuple(hook for hook in every if hook.wants_streaming)
        self._muted_until = [0.0] * len(self._streaming)
        self.wants_streaming = bool(self._streaming)
        self.changes_messages = any(hook.changes_messages for hook in self._before_iteration)

    async def before_iteration(self, context: Iteration) -> None:
        for hook in self._before_iteration:
            if not hook.changes_messages:
                await self._guard(hook, "before_iteration", context)
                continue
            kept = context.messages  # a hook works on a copy: a failure halfway leaves no trace
            context.messages = [dict(message) for message in kept]
            check = partial(check_messages, context, kept)
            if not await self._guard(hook, "before_iteration", context, check=check):
                context.messages = kept

    async def on_stream(self, delta: str) -> None:
        loop_time = asyncio.get_running_loop().time
        for at, hook in enumerate(self._streaming):
            began = loop_time()
            if began < self._muted_until[at]:
                continue
            await self._guard(hook, "on_stream", delta)
            if loop_time() - began >= self._call_limit_s:
                self._muted_until[at] = loop_time() + MUTE_S

    async def on_stream_end(self) -> None:
        for hook in self._streaming:
            await self._guard(hook, "on_stream_end")

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        for hook in self._before_tools:
            answer = await self._guard(hook, "before_execute_tools", calls, check=checked_refusals)
            refused = (answer or {}) | refused
        return refused

    async def after_iteration(self, result: IterationDone) -> None:
        for hook in self._after_iteration:
            await self._guard(hook, "after_iteration", result)

    async def finalize_content(self, text: str) -> str:
        for hook in self._finalize:
            answer: str | None = await self._guard(hook, "finalize_content", text, check=checked_text)
            text = text if answer is None else answer
        return text

    async def _guard(self, hook: AgentHook, event: str, *arguments: Any, check: Check = bool) -> Any:
        """Return the hook's answer as `check` returns it; None if either fails or is too slow."""
        try:
            return check(await within(self._call_limit_s, getattr(hook, event)(*arguments)))
        except (asyncio.CancelledError, Exception) as exc:
            # Only a cancellation of this task goes up; one that the hook made itself is its fault.
            if isinstance(exc, asyncio.CancelledError) and is_cancelled():
                raise
            self._report(f"hook {type(hook).__name__}.{event}", exc)
        return None


def _hooks_with(method: str, hooks: Iterable[AgentHook]) -> tuple[AgentHook, ...]:
    base = getattr(AgentHook, method)
    return tuple(hook for hook in hooks if getattr(getattr(hook, method), "__func__", 0) is not base)
