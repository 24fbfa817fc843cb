"""OpenAI's chat protocol in bytes: what is asked, written once where it stays the same, and what is
answered, typed.

Of an answer only the fields that a reply is made of are read; all others are skipped by the
decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from worker.agent.model.model import ModelRequest, ToolSpec
from worker.llm.caching import marked_messages, marked_tools
from worker.llm.providers import Route

_KEPT: Final = 64  # prompts and tool lists whose bytes are kept: those of the turns that run now


class FunctionCall(msgspec.Struct, gc=False):
    """The function of a call, or a piece of it."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCallDelta(msgspec.Struct, gc=False):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: FunctionCall | None = None


class ContentPart(msgspec.Struct, gc=False):
    """A part of a content that is a list: text, or thoughts that are parts themselves."""

    text: str | None = None
    thinking: list[ContentPart] | None = None


class CompletionMessage(msgspec.Struct, gc=False):
    """What the model says, or a delta of it. Thoughts have either name."""

    content: str | list[ContentPart] | None = None
    tool_calls: list[ToolCallDelta] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class CompletionChoice(msgspec.Struct, gc=False):
    """One answer of possibly several; we ask for one."""

    delta: CompletionMessage | None = None
    message: CompletionMessage | None = None
    finish_reason: str | None = None


class CachedTokens(msgspec.Struct, gc=False):
    """How many tokens of a prompt the provider had in its cache."""

    cached_tokens: int | None = None


class CompletionUsage(msgspec.Struct, gc=False):
    """What was counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """A whole answer or a chunk of one. With an `error` it is neither."""

    choices: list[CompletionChoice] | None = None
    usage: CompletionUsage | None = None
    error: Any = None
    model: Any = None


decode: Final = msgspec.json.Decoder(ChatCompletion).decode
"""Bytes to a Chat. Raises msgspec.DecodeError."""


class RequestWriter:
    """Writes the requests to one model. The bytes of a system text and of a tuple of tools are made
    once."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._encoder = msgspec.json.Encoder()
        self._encoded: dict[int, tuple[object, msgspec.Raw]] = {}

    def write(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request. Raises an error of msgspec for a message that is not JSON."""
        route = self._route
        body: dict[str, Any] = {
            "model": route.model,
            "messages": self._messages(request.messages),
            route.max_tokens_key: max(1, request.max_tokens),
            "temperature": request.temperature,
        }
        if request.tools:
            body |= {"tools": self._tools(request.tools), "tool_choice": "auto"}
        if stream:
            body["stream"] = True
            if route.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return self._encoder.encode(route.apply_overrides(body))

    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        first = messages[0] if messages else {}
        content = first.get("content")
        if first.get("role") != "system" or not isinstance(content, str) or len(first) != 2:
            return messages
        return [self._encode_once(content, lambda: self._marked([first])[0]), *messages[1:]]

    def _tools(self, tools: Sequence[ToolSpec]) -> Any:
        if isinstance(tools, tuple):
            return self._encode_once(tools, lambda: self._offers(tools))
        return self._offers(tools)  # a list may be another one at the next call

    def _marked(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        return marked_messages(messages) if self._route.caching else messages

    def _offers(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        offers = [offer(tool) for tool in tools]
        return marked_tools(offers) if self._route.caching else offers

    def _encode_once(self, thing: object, made: Any) -> msgspec.Raw:
        """The bytes of what is made of a thing that never changes; the thing is kept, so its id
        stays its own."""
        kept = self._encoded.get(id(thing))
        if kept is not None:
            return kept[1]
        if len(self._encoded) >= _KEPT:
            self._encoded.clear()
        raw = msgspec.Raw(self._encoder.encode(made()))
        self._encoded[id(thing)] = (thing, raw)
        return raw


def offer(tool: ToolSpec) -> dict[str, Any]:
    """A tool as OpenAI's protocol offers it."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }
