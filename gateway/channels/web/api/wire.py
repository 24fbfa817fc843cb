"""Bodies of the API's responses, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from shared.messages.outbound import TokensUsed

Finish = Literal["stop", "length"]

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"


def encode_model(name: str) -> bytes:
    """Encode a model that requests may name."""
    return msgspec.json.encode(_model(name))


def encode_models(names: Iterable[str]) -> bytes:
    """Encode the list of models."""
    return msgspec.json.encode({"object": "list", "data": [_model(name) for name in names]})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "shoal"}


class CompletionEncoder(msgspec.Struct, frozen=True):
    """Encodes one answer, whole or in pieces. `created` is in s; `model` as requests name it."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    def encode_completion(self, text: str, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the complete answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return msgspec.json.encode(self._body("chat.completion", [choice]) | {"usage": _usage(usage)})

    def encode_first(self) -> bytes:
        """Encode the first piece, which has the role."""
        return self._piece({"role": "assistant", "content": ""})

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        return self._piece({"content": text})

    def encode_last(self, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the pieces at the end."""
        end = self._piece({}, finish)
        return (end + self._event([], _usage(usage)) if self.with_usage else end) + DONE

    def _piece(self, delta: dict[str, str], finish: Finish | None = None) -> bytes:
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

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


def _usage(used: TokensUsed | None) -> dict[str, Any]:
    """Return the tokens of all model calls of the turn; zeros where they are unknown."""
    used = used or TokensUsed()
    return {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.completion,
        "total_tokens": used.prompt + used.completion,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    }
