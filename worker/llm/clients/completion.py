"""Answers of OpenAI's chat protocol in their strict form: only the fields that a reply is made of, each
of the one type that the protocol gives it. `answer/plain.py` reads what has another form."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class FunctionPiece(msgspec.Struct, gc=False):
    """Name and arguments of a call, or a piece of them."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    """A tool call, or a piece of one. `extra_content` has Gemini's signature of the thought that led
    to it (https://ai.google.dev/gemini-api/docs/thought-signatures)."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    extra_content: Any = None


class WireMessage(msgspec.Struct, gc=False):
    """A message, or a delta of one. `function_call` is the older form of a single call."""

    content: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name for thoughts
    function_call: FunctionPiece | None = None
    refusal: str | None = None


class WireChoice(msgspec.Struct, gc=False):
    """One of several possible answers; we ask for one."""

    index: int | None = None
    delta: WireMessage | None = None
    message: WireMessage | None = None
    finish_reason: str | None = None
    error: Any = None


class CachedTokens(msgspec.Struct, gc=False):
    """The part of a prompt that the provider's cache held."""

    cached_tokens: int | None = None


class WireUsage(msgspec.Struct, gc=False):
    """The token counts of an answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """An answer, or one chunk of a streamed answer. If `error` is set, nothing else counts."""

    choices: list[WireChoice] | None = None
    usage: WireUsage | None = None
    error: Any = None
    model: Any = None


decode: Final = msgspec.json.Decoder(ChatCompletion).decode  # raises msgspec.DecodeError
