"""Answers of OpenAI's chat protocol; only the fields that a reply is made of are read."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class _FunctionCall(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct, gc=False):  # or a piece of one
    index: int | None = None
    id: str | None = None
    function: _FunctionCall | None = None


class _ContentPart(msgspec.Struct, gc=False):  # text, or thoughts that are parts themselves
    text: str | None = None
    thinking: list[_ContentPart] | None = None


class _WireMessage(msgspec.Struct, gc=False):  # or a delta of one
    content: str | list[_ContentPart] | None = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: Any = None
    reasoning: Any = None  # another name for thoughts


class _WireChoice(msgspec.Struct, gc=False):  # one of several possible answers; we ask for one
    delta: _WireMessage | None = None
    message: _WireMessage | None = None
    finish_reason: str | None = None


class _CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """An answer, or one chunk of a streamed answer. If `error` is set, nothing else counts."""

    choices: list[_WireChoice] | None = None
    usage: _Usage | None = None
    error: Any = None
    model: Any = None


decode: Final = msgspec.json.Decoder(ChatCompletion).decode  # raises msgspec.DecodeError
