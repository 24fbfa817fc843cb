"""Hooks: what may watch a turn and change a little of it, without being able to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from shared.messages.transcript import ToolEntry
from worker.agent.model.model import ToolCallRequest, Usage
from worker.agent.tools.tool import Outcome, Report, ignore_report
from worker.agent.tools.within import within

CALL_LIMIT_S: Final = 1.0
MUTE_S: Final = 60.0
"""How long a hook that was too slow for a delta hears none: a reply has hundreds, and each would
wait."""


class Iteration(msgspec.Struct):
    """A round that is about to begin. A hook may change `messages`: what it does to them the model
    sees."""

    session: str
    turn: int
    round: int
    messages: list[dict[str, Any]]


class ToolRun(msgspec.Struct, frozen=True):
    """How a call went."""

    outcome: Outcome
    seconds: float


class IterationDone(msgspec.Struct, frozen=True, kw_only=True):
    """A round that has ended. `results` is empty when the model asked for no tool.

    `usage` is that of all calls of the round, `seconds` the time until the reply was whole. `runs`
    tells, by the ids of the calls, of the tools that this worker ran. With `resumed` the reply is
    one that an earlier worker had stored: no model was asked, and of the calls some may have been
    run before.
    """

    session: str
    turn: int
    round: int
    model: str
    finish_reason: str
    usage: Usage
    seconds: float
    calls: tuple[ToolCallRequest, ...] = ()
    results: tuple[ToolEntry, ...] = ()
    runs: Mapping[str, ToolRun] = {}
    resumed: bool = False


class AgentHook:
    """Base of all hooks; every method does nothing until a subclass says otherwise."""

    wants_streaming: bool = False
    """Whether on_stream is wanted; then the model is asked to stream even if nobody watches."""

    changes_messages: bool = True
    """Whether before_iteration may change the messages. One that only looks says False, and no copy
    of a long conversation is made for it."""

    async def before_iteration(self, context: Iteration) -> None:
        """A round begins."""

    async def on_stream(self, delta: str) -> None:
        """More visible text of the running reply."""

    async def on_stream_end(self) -> None:
        """The running reply is complete, or taken back."""

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        """Answer {call id: reason} for the calls that must not run.

        This is for advice: a hook that breaks refuses nothing, so a border of security does not
        belong here.
        """
        return {}

    async def after_iteration(self, result: IterationDone) -> None:
        """A round is over."""

    async def finalize_content(self, text: str) -> str:
        """The final text, perhaps changed."""
        return text


class CompositeHook(AgentHook):
    """Several hooks as one, called in the order given; a moment that a hook has no method for costs
    nothing. One that raises or is too slow is reported and passed over, and nothing that it began
    stays: neither half-changed messages nor an answer of the wrong kind."""

    def __init__(
        self, hooks: Iterable[AgentHook] = (), *, report: Report = ignore_report, call_limit_s: float = CALL_LIMIT_S
    ) -> None:
        self._report = report
        self._call_limit_s = call_limit_s
        every = tuple(hooks)
        self._before_iteration = _with("before_iteration", every)
        self._before_tools = _with("before_execute_tools", every)
        self._after_iteration = _with("after_iteration", every)
        self._finalize = _with("finalize_content", every)
        self._streaming = tuple(hook for hook in every if hook.wants_streaming)
        self._muted_until = [0.0] * len(self._streaming)
        self.wants_streaming = bool(self._streaming)
        self.changes_messages = any(hook.changes_messages for hook in self._before_iteration)

    async def before_iteration(self, context: Iteration) -> None:
        for hook in self._before_iteration:
            if not hook.changes_messages:
                await self._guard(hook, "before_iteration", context)
                continue
            kept = context.messages
            context.messages = [dict(message) for message in kept]
            if not await self._guard(hook, "before_iteration", context, check=partial(_sound, context, kept)):
                context.messages = kept

    async def on_stream(self, delta: str) -> None:
        now = asyncio.get_running_loop().time
        for at, hook in enumerate(self._streaming):
            began = now()
            if began < self._muted_until[at]:
                continue
            await self._guard(hook, "on_stream", delta)
            if now() - began >= self._call_limit_s:
                self._muted_until[at] = now() + MUTE_S

    async def on_stream_end(self) -> None:
        for hook in self._streaming:
            await self._guard(hook, "on_stream_end")

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        for hook in self._before_tools:
            answer = await self._guard(hook, "before_execute_tools", calls, check=_refusals)
            refused = {**(answer or {}), **refused}
        return refused

    async def after_iteration(self, result: IterationDone) -> None:
        for hook in self._after_iteration:
            await self._guard(hook, "after_iteration", result)

    async def finalize_content(self, text: str) -> str:
        for hook in self._finalize:
            answer: str | None = await self._guard(hook, "finalize_content", text, check=_text)
            text = text if answer is None else answer
        return text

    async def _guard(self, hook: AgentHook, event: str, *arguments: Any, check: Callable[[Any], Any] = bool) -> Any:
        """What `check` makes of the hook's answer; None when the hook breaks or is too slow, or the
        check fails."""
        try:
            return check(await within(self._call_limit_s, getattr(hook, event)(*arguments)))
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._report(f"hook {type(hook).__name__}.{event}", exc)
        except Exception as exc:
            self._report(f"hook {type(hook).__name__}.{event}", exc)
        return None


def _with(moment: str, hooks: Iterable[AgentHook]) -> tuple[AgentHook, ...]:
    """The hooks that have a method of their own for a moment."""
    nothing = getattr(AgentHook, moment)
    return tuple(hook for hook in hooks if getattr(getattr(hook, moment), "__func__", None) is not nothing)


def _sound(context: Iteration, kept: Sequence[Mapping[str, Any]], _answer: Any) -> bool:
    """Whether what a hook made of the messages can be sent at all; raises for what cannot.

    Whether a provider takes it is the hook's care.
    """
    if context.messages == kept:
        return True
    for message in context.messages:
        content = message.get("content")
        if not isinstance(message["role"], str):
            raise TypeError("the role of a message is no text")
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            raise TypeError("a part of a message is no dict")
        if not isinstance(content, str | list | None):
            raise TypeError(f"the content of a message is of type {type(content).__name__}")
    msgspec.json.encode(context.messages)
    return True


def _refusals(answer: Any) -> dict[str, str]:
    refused = dict(answer or {})
    if not all(isinstance(text, str) for pair in refused.items() for text in pair):
        raise TypeError("before_execute_tools must answer {call id: reason}, both text")
    return refused


def _text(answer: Any) -> str | None:
    if answer is not None and not isinstance(answer, str):
        raise TypeError(f"finalize_content answered {type(answer).__name__}; it must be text")
    return answer


NO_HOOK: Final = AgentHook()
"""The hook of a turn without hooks."""
