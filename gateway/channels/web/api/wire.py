"""Bodies of the API's responses, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from shared.messages.outbound import TokensUsed

Finish = Literal["stop", "length"]

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"


class PromptDetails(msgspec.Struct, frozen=True):
    """Tokens of the prompt that were read from a cache."""

    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True):
    """Tokens of all model calls of the turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """The message of the assistant."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChoiceBody(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice."""

    index: int = 0
    message: MessageBody
    logprobs: None = None
    finish_reason: Finish


class CompletionBody(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[ChoiceBody, ...]
    usage: UsageBody


class DeltaBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of the assistant's message."""

    role: Literal["", "assistant"] = ""
    content: str | None = None


class ChunkChoiceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the only choice."""

    index: int = 0
    delta: DeltaBody
    logprobs: None = None
    finish_reason: Finish | None = None


class ChunkBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of an answer. `usage` is left out unless it was asked for; then it is null in all but
    the last."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChunkChoiceBody, ...]
    usage: UsageBody | msgspec.UnsetType | None = msgspec.UNSET


class ModelBody(msgspec.Struct, frozen=True, kw_only=True):
    """A model that requests may name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "shoal"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The list of models."""

    object: Literal["list"] = "list"
    data: tuple[ModelBody, ...]


class CompletionEncoder(msgspec.Struct, frozen=True):
    """Encodes one answer, whole or in pieces. `created` is when it was begun, in s; `model` is the
    name in the request."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    def encode_completion(self, text: str, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the complete answer."""
        choice = ChoiceBody(message=MessageBody(content=text), finish_reason=finish)
        return msgspec.json.encode(
            CompletionBody(
                id=self.id, created=self.created, model=self.model, choices=(choice,), usage=usage_body(usage)
            )
        )

    def encode_first(self) -> bytes:
        """Encode the first piece, which has the role."""
        return self._event([ChunkChoiceBody(delta=DeltaBody(role="assistant", content=""))])

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        return self._event([ChunkChoiceBody(delta=DeltaBody(content=text))])

    def encode_last(self, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the pieces at the end."""
        end = self._event([ChunkChoiceBody(delta=DeltaBody(), finish_reason=finish)])
        if self.with_usage:
            end += self._event([], usage_body(usage))
        return end + DONE

    def _event(self, choices: Iterable[ChunkChoiceBody], usage: UsageBody | None = None) -> bytes:
        chunk = ChunkBody(
            id=self.id,
            object="chat.completion.chunk",
            created=self.created,
            model=self.model,
            choices=tuple(choices),
            usage=usage if self.with_usage else msgspec.UNSET,
        )
        return event(msgspec.json.encode(chunk))


def event(data: bytes) -> bytes:
    """Return one event of a stream."""
    return b"data: " + data + b"\n\n"


def usage_body(used: TokensUsed | None) -> UsageBody:
    """Return the usage; zeros where it is unknown."""
    used = used or TokensUsed()
    return UsageBody(used.prompt, used.completion, used.prompt + used.completion, PromptDetails(used.cached))
