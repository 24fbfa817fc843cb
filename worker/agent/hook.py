"""Hooks: they may watch a turn and change a little of it, and cannot stop it."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from shared.messages.transcript import ToolEntry
from worker.agent.model.model import TokenUsage, ToolCallRequest
from worker.agent.tools.tool import Outcome, Report, ignore_report, is_cancelled

T = TypeVar("T")
Check = Callable[[Any], Any]
CALL_LIMIT_S: Final = 1.0
MUTE_S: Final = 60.0  # without deltas for a hook that was too slow for one: a reply has hundreds


class Iteration(msgspec.Struct):
    """A round that is about to begin. A hook may change `messages`: the model sees the result."""

    session: str
    turn: int
    round: int
    messages: list[dict[str, Any]]


class ToolRun(msgspec.Struct, frozen=True):
    """Outcome and duration of a call."""

    outcome: Outcome
    seconds: float


class IterationDone(msgspec.Struct, frozen=True, kw_only=True):
    """A round that has ended. `results` is empty when the model asked for no tool. `usage` covers
    all model calls of the round, `seconds` is the time until the reply was complete. `runs` has the
    tool calls that this worker ran, by their ids. With `resumed` the reply is one that an earlier
    worker had stored: no model was asked, and some of the calls may have run before."""

    session: str
    turn: int
    round: int
    model: str
    finish_reason: str
    usage: TokenUsage
    seconds: float
    calls: tuple[ToolCallRequest, ...] = ()
    results: tuple[ToolEntry, ...] = ()
    runs: Mapping[str, ToolRun] = {}
    resumed: bool = False


class AgentHook:
    """Base of all hooks. Every method does nothing unless a subclass overrides it."""

    wants_streaming: bool = False
    """True if the hook wants on_stream; then the model is asked to stream even without a viewer."""

    changes_messages: bool = True
    """False in a hook whose before_iteration only reads the messages: then they are not copied."""

    async def before_iteration(self, context: Iteration) -> None:
        """Called when a round begins."""

    async def on_stream(self, delta: str) -> None:
        """Called with more visible text of the running reply."""

    async def on_stream_end(self) -> None:
        """Called when the running reply is complete, or taken back."""

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        """Return {call id: reason} for the calls that must not run. This is advice: a hook that
        fails refuses nothing, so a security boundary does not belong here."""
        return {}

    async def after_iteration(self, result: IterationDone) -> None:
        """Called when a round is over."""

    async def finalize_content(self, text: str) -> str:
        """Return the final text, changed or not."""
        return text


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
            check = partial(_check_messages, context, kept)
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
            answer = await self._guard(hook, "before_execute_tools", calls, check=_checked_refusals)
            refused = (answer or {}) | refused
        return refused

    async def after_iteration(self, result: IterationDone) -> None:
        for hook in self._after_iteration:
            await self._guard(hook, "after_iteration", result)

    async def finalize_content(self, text: str) -> str:
        for hook in self._finalize:
            answer: str | None = await self._guard(hook, "finalize_content", text, check=_checked_text)
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


def _check_messages(context: Iteration, kept: list[dict[str, Any]], _answer: Any) -> bool:
    """Return True if the messages that a hook left can be sent at all; raise otherwise."""
    if context.messages == kept:
        return True
    for message in context.messages:
        content = message.get("content")
        if not isinstance(message["role"], str):
            raise TypeError("the role of a message is not text")
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            raise TypeError("a part of a message is not a dict")
        if not isinstance(content, str | list | None):
            raise TypeError(f"the content of a message is of type {type(content).__name__}")
    msgspec.json.encode(context.messages)
    return True


def _checked_refusals(answer: Any) -> dict[str, str]:
    refused = dict(answer or {})
    if not all(isinstance(text, str) for pair in refused.items() for text in pair):
        raise TypeError("before_execute_tools must answer {call id: reason}, both text")
    return refused


def _checked_text(answer: Any) -> str | None:
    if answer is not None and not isinstance(answer, str):
        raise TypeError(f"finalize_content answered {type(answer).__name__}; it must be text")
    return answer


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
