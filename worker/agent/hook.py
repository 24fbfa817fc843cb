"""Hooks: what may watch a turn and change a little of it, without being able to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.messages.transcript import ToolEntry
from worker.agent.model import ToolCallRequest, Usage
from worker.agent.tool import Report, ignore_report

CALL_LIMIT_S: Final = 1.0


class Iteration(msgspec.Struct):
    """A round that is about to begin. A hook may change `messages`: what it does to them the model sees."""

    session: str
    turn: int
    round: int
    messages: list[dict[str, Any]]


class IterationDone(msgspec.Struct, frozen=True, kw_only=True):
    """A round that has ended. `results` is empty when the model asked for no tool."""

    session: str
    turn: int
    round: int
    model: str
    finish_reason: str
    usage: Usage
    seconds: float
    calls: tuple[ToolCallRequest, ...] = ()
    results: tuple[ToolEntry, ...] = ()


class AgentHook:
    """Base of all hooks; every method does nothing until a subclass says otherwise."""

    wants_streaming: bool = False
    """Whether on_stream is wanted; then the model is asked to stream even if nobody watches."""

    async def before_iteration(self, context: Iteration) -> None:
        """A round begins."""

    async def on_stream(self, delta: str) -> None:
        """More visible text of the running reply."""

    async def on_stream_end(self) -> None:
        """The running reply is complete, or taken back."""

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        """Answer {call id: reason} for the calls that must not run.

        This is for advice: a hook that breaks refuses nothing, so a border of security does not belong here.
        """
        return {}

    async def after_iteration(self, result: IterationDone) -> None:
        """A round is over."""

    async def finalize_content(self, text: str) -> str:
        """The final text, perhaps changed."""
        return text


class CompositeHook(AgentHook):
    """Several hooks as one, called in the order given. One that raises or is too slow is reported and passed over."""

    def __init__(
        self, hooks: Iterable[AgentHook] = (), *, report: Report = ignore_report, call_limit_s: float = CALL_LIMIT_S
    ) -> None:
        self._hooks = tuple(hooks)
        self._report = report
        self._call_limit_s = call_limit_s
        self.wants_streaming = any(hook.wants_streaming for hook in self._hooks)
        self._streaming = tuple(hook for hook in self._hooks if hook.wants_streaming)

    async def before_iteration(self, context: Iteration) -> None:
        for hook in self._hooks:
            await self._guard(hook, "before_iteration", context)

    async def on_stream(self, delta: str) -> None:
        for hook in self._streaming:
            await self._guard(hook, "on_stream", delta)

    async def on_stream_end(self) -> None:
        for hook in self._streaming:
            await self._guard(hook, "on_stream_end")

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        for hook in self._hooks:
            answer = await self._guard(hook, "before_execute_tools", calls, kind=Mapping)
            refused = {**(answer or {}), **refused}
        return refused

    async def after_iteration(self, result: IterationDone) -> None:
        for hook in self._hooks:
            await self._guard(hook, "after_iteration", result)

    async def finalize_content(self, text: str) -> str:
        for hook in self._hooks:
            answer = await self._guard(hook, "finalize_content", text, kind=str)
            text = text if answer is None else answer
        return text

    async def _guard(self, hook: AgentHook, event: str, *arguments: Any, kind: type = object) -> Any:
        """What the hook answers, or None when it breaks, is too slow or answers something of another kind."""
        try:
            async with asyncio.timeout(self._call_limit_s):
                answer = await getattr(hook, event)(*arguments)
            if answer is not None and not isinstance(answer, kind):
                raise TypeError(f"{event} answered {type(answer).__name__}; it must be {kind.__name__}")
            return answer
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._report(f"hook {type(hook).__name__}.{event}", exc)
        except Exception as exc:
            self._report(f"hook {type(hook).__name__}.{event}", exc)
        return None


NO_HOOK: Final = AgentHook()
