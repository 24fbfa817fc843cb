"""A model that says what a test tells it to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage, ToolCallRequest


class Broken(msgspec.Struct, frozen=True):
    """A reply that breaks off: these deltas, then this fault."""

    fault: BaseException
    deltas: tuple[str, ...] = ()


Reply = str | LLMResponse | Broken | BaseException
Replies = Sequence[Reply] | Callable[[list[dict[str, Any]]], Reply]


class ScriptedModel:
    """Answers with one scripted reply after the other, or with what a function makes of the messages.

    Content is streamed word by word. `asked` holds the messages of every call, `offered` the tool names. A call
    beyond the script fails the test.
    """

    name = "scripted"

    def __init__(self, replies: Replies, *, pieces: Callable[[str], list[str]] | None = None) -> None:
        self._replies = replies
        self._pieces = pieces or (lambda text: re.findall(r"\s*\S+|\s+", text))
        self.asked: list[list[dict[str, Any]]] = []
        self.offered: list[list[str]] = []
        self.choices: list[str] = []

    async def preload(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        self.asked.append([dict(message) for message in request.messages])
        self.offered.append([tool.name for tool in request.tools])
        self.choices.append(request.tool_choice)
        reply = self._next()
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Broken):
            for delta in reply.deltas if on_delta else ():
                assert on_delta is not None
                await on_delta(delta)
            raise reply.fault
        response = LLMResponse(content=reply) if isinstance(reply, str) else reply
        if on_delta is not None:
            for piece in self._pieces(response.content or ""):
                await on_delta(piece)
        return response

    def _next(self) -> Reply:
        if callable(self._replies):
            return self._replies(self.asked[-1])
        assert len(self.asked) <= len(self._replies), f"the model was asked {len(self.asked)} times: {self.asked[-1]}"
        return self._replies[len(self.asked) - 1]


def call(name: str, arguments: dict[str, Any] | None = None, id: str = "") -> ToolCallRequest:
    """A tool call as a client hands it on."""
    given = arguments or {}
    return ToolCallRequest(id or f"id-{name}", name, given, msgspec.json.encode(given).decode())


def calls(*wanted: ToolCallRequest, text: str | None = None, finish_reason: str = "tool_calls") -> LLMResponse:
    """A reply that asks for tools."""
    return LLMResponse(content=text, tool_calls=wanted, finish_reason=finish_reason, usage=TokenUsage(10, 1))
