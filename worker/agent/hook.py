"""Hooks: they may watch a turn and change a little of it, and cannot stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.messages.transcript import ToolEntry
from worker.agent.model.model import TokenUsage, ToolCallRequest
from worker.agent.tools.tool import Outcome


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


def check_messages(context: Iteration, kept: list[dict[str, Any]], _answer: Any) -> bool:
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


def checked_refusals(answer: Any) -> dict[str, str]:
    """Return the refusals as a dict. Raises TypeError if they are no texts."""
    refused = dict(answer or {})
    if not all(isinstance(text, str) for pair in refused.items() for text in pair):
        raise TypeError("before_execute_tools must answer {call id: reason}, both text")
    return refused


def checked_text(answer: Any) -> str | None:
    """Return the text or None. Raises TypeError for anything else."""
    if answer is not None and not isinstance(answer, str):
        raise TypeError(f"finalize_content answered {type(answer).__name__}; it must be text")
    return answer
