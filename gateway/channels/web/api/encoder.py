"""Answers as OpenAI's chat completions: JSON, and chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, Self

import msgspec

from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.errors import ApiError, encode_error
from shared.messages.outbound import StoredAnswer, TokensUsed
from shared.messages.transcript import ToolCall

Finish = Literal["stop", "length", "tool_calls"]

DONE: Final = b"data: [DONE]\n\n"


def encode_model(name: str) -> bytes:
    """Encode a model that requests may name."""
    return msgspec.json.encode(_model(name))


def encode_models(names: Iterable[str]) -> bytes:
    """Encode the list of models."""
    return msgspec.json.encode({"object": "list", "data": [_model(name) for name in names]})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "shoal"}


class AnswerEncoder(Protocol):
    """Encodes one answer in the form of a protocol, whole or as a stream. The answer is None while
    a response in the background has none. `over` in an error: no answer will come; otherwise only
    this gateway cannot bring it."""

    def encode_answer(self, answer: StoredAnswer | None) -> bytes: ...

    def encode_first(self) -> bytes: ...

    def encode_text(self, text: str) -> bytes: ...

    def encode_last(self, answer: StoredAnswer) -> bytes: ...

    def encode_error(self, error: ApiError, *, over: bool) -> bytes: ...


class CompletionEncoder(msgspec.Struct, frozen=True):
    """Encodes one answer, whole or in pieces. `created` is in s; `model` as requests name it."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    @classmethod
    def of(cls, completion: Completion) -> Self:
        """Return the encoder of a completion that was begun."""
        begun = completion.begun
        asked = completion.request
        return cls(f"chatcmpl-{begun.ticket}", begun.at_ms // 1000, asked.model, asked.with_usage)

    def encode_answer(self, answer: StoredAnswer | None) -> bytes:
        """Encode the complete answer."""
        assert answer is not None, "only a response is made in the background"
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": [*map(_call, answer.calls)]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        body = self._body("chat.completion", [choice])
        return msgspec.json.encode(body | {"usage": _usage(answer.usage)})

    def encode_first(self) -> bytes:
        """Encode the first piece, which has the role."""
        return self._piece({"role": "assistant", "content": ""})

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        return self._piece({"content": text})

    def encode_last(self, answer: StoredAnswer) -> bytes:
        """Encode the pieces at the end."""
        calls = [{"index": at, **_call(call)} for at, call in enumerate(answer.calls)]
        end = (self._piece({"tool_calls": calls}) if calls else b"") + self._piece({}, answer.finish)
        return (end + self._event([], _usage(answer.usage)) if self.with_usage else end) + DONE

    def encode_error(self, error: ApiError, *, over: bool) -> bytes:
        """Encode the error that ends a stream."""
        return event(encode_error(error))

    def _piece(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice])

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        chunk = self._body("chat.completion.chunk", choices)
        if self.with_usage:  # null in all but the last
            chunk["usage"] = usage
        return event(msgspec.json.encode(chunk))

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def event(data: bytes) -> bytes:
    """Return one event of a stream."""
    return b"data: " + data + b"\n\n"


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(used: TokensUsed | None) -> dict[str, Any]:
    """Return the tokens of all model calls of the turn; zeros where they are unknown."""
    used = used or TokensUsed()
    return {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.completion,
        "total_tokens": used.prompt + used.completion,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    }
