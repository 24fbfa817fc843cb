"""The model as the agent sees it: one call in, one reply out, and pictures on the way in."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

OnDelta = Callable[[str], Awaitable[None]]


class ToolCallRequest(msgspec.Struct, frozen=True):
    """A model's request to run a tool. `arguments` is None if `raw` is beyond repair. `extra` is what
    the model wants back with the call, as JSON: the signature of a thought."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str
    extra: str = ""


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens of one call, or the sum of several. `cached_tokens` is the part of the prompt that the
    provider's cache held; `cost_usd` is 0 if no price is known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost_usd + other.cost_usd,
        )


class LLMResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One reply. `finish_reason` is `stop`, `tool_calls`, `length`, `content_filter`, another word of
    the provider, or `""` for a text of which nobody can tell whether it is whole. `model` is the
    provider's name of the model that answered; `""` if it gives none. `asked` is the name of the
    model that was asked, as `Model.name`."""

    content: str | None
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: str = "stop"
    usage: TokenUsage = TokenUsage()
    reasoning_content: str | None = None
    model: str = ""
    asked: str = ""

    @property
    def has_tool_calls(self) -> bool:
        return bool(self.tool_calls)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as it is offered to a model. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    """One call of a model: `messages` in OpenAI's chat form, the tools on offer, and limits.
    `session` is the one that it is made for; the provider does not get it. Of `top_p` and `seed` it
    gets what is not None. With `tool_choice` `required` the reply must call a tool, where the
    provider can be told so."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 4096
    temperature: float = 0.7
    session: str = ""
    top_p: float | None = None
    seed: int | None = None
    tool_choice: Literal["auto", "required"] = "auto"

    @property
    def sampling(self) -> dict[str, float | int]:
        """The parameters that choose among words, as providers call them."""
        chosen = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return {name: value for name, value in chosen.items() if value is not None}


class Model(Protocol):
    """A client of one chat model, or a wrapper that adds one policy to another Model."""

    @property
    def name(self) -> str:
        """The model's name, for logs and metrics."""

    async def preload(self) -> None:
        """Do the slow part of the first call in advance. May be called at any time, and again."""

    async def close(self) -> None:
        """Close connections; the next call opens them again."""

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        """Return one reply. With `on_delta` it is streamed: its deltas joined are the content.
        Raises shared.errors.ModelError. If that happens after a delta, the text so far is void and
        the caller decides whether to ask again. An exception of `on_delta` ends the call."""


class Image(msgspec.Struct, frozen=True):
    """A picture. `media_type` describes its bytes, such as `image/png`, whatever its name says."""

    media_type: str
    data: bytes


def image_part(image: Image) -> dict[str, Any]:
    """Return a part of a user's message in OpenAI's form, with the bytes in a data URL."""
    url = f"data:{image.media_type};base64,{b64encode(image.data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": url}}


def image_mark(image: Image) -> str:
    """Return the text that history keeps instead of the bytes: `[image: image/png, 12 kB]`."""
    return f"[image: {image.media_type}, {max(1, round(len(image.data) / 1000)):,} kB]"
