"""What the API answers, as OpenAI's clients read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from shared.messages.outbound import TokensUsed

Finish = Literal["stop", "length"]

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"


class PromptDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens, those that a cache held."""

    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True):
    """How many tokens the model calls of the turn had."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """What the assistant said."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChoiceBody(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice there is."""

    index: int = 0
    message: MessageBody
    logprobs: None = None
    finish_reason: Finish


class CompletionBody(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[ChoiceBody, ...]
    usage: UsageBody


class DeltaBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of what the assistant says."""

    role: Literal["", "assistant"] = ""
    content: str | None = None


class ChunkChoiceBody(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the one choice."""

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
    """A model that may be asked."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "shoal"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    object: Literal["list"] = "list"
    data: tuple[ModelBody, ...]


class CompletionEncoder(msgspec.Struct, frozen=True):
    """What all pieces of one answer have alike: its id, when it was begun (s), the model that was
    named."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    def encode_completion(self, text: str, finish: Finish, usage: TokensUsed | None) -> bytes:
        """The answer in one."""
        choice = ChoiceBody(message=MessageBody(content=text), finish_reason=finish)
        return msgspec.json.encode(
            CompletionBody(
                id=self.id, created=self.created, model=self.model, choices=(choice,), usage=usage_body(usage)
            )
        )

    def encode_first(self) -> bytes:
        """The piece that says who speaks."""
        return self._event([ChunkChoiceBody(delta=DeltaBody(role="assistant", content=""))])

    def encode_text(self, text: str) -> bytes:
        """A piece of text."""
        return self._event([ChunkChoiceBody(delta=DeltaBody(content=text))])

    def encode_last(self, finish: Finish, usage: TokensUsed | None) -> bytes:
        """The pieces at the end."""
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
    """One event of a stream."""
    return b"data: " + data + b"\n\n"


def usage_body(used: TokensUsed | None) -> UsageBody:
    """Zeros where nobody counted."""
    used = used or TokensUsed()
    return UsageBody(used.prompt, used.completion, used.prompt + used.completion, PromptDetails(used.cached))
