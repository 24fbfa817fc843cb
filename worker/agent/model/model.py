"""The model as the agent sees it: one call in, one reply out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

OnDelta = Callable[[str], Awaitable[None]]


class ToolCallRequest(msgspec.Struct, frozen=True):
    """A model's wish to use a tool. `raw` is its JSON text; `arguments` is None when that text
    cannot be repaired."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens of one call, or of several added up. `cached_tokens` are those of the prompt that a
    provider's cache held; `cost_usd` is 0 where no price is known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost_usd + other.cost_usd,
        )


class LLMResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One reply. `finish_reason` is `stop`, `tool_calls`, `length`, or what else the provider says.
    `model` is the name of the model that answered, in the provider's words; `""` when it says
    none."""

    content: str | None
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: str = "stop"
    usage: TokenUsage = TokenUsage()
    reasoning_content: str | None = None
    model: str = ""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as it is offered to a model. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Model(Protocol):
    """Whatever answers messages in OpenAI's chat form."""

    @property
    def name(self) -> str:
        """The model's name, for logs and metrics."""
        ...

    async def preload(self) -> None:
        """Do what the first call would have to wait for. May be called at any time, and again."""
        ...

    async def close(self) -> None:
        """Let connections go; the next call opens them again."""
        ...

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        on_delta: OnDelta | None = None,
    ) -> LLMResponse:
        """Answer once. With `on_delta` the reply is streamed: its deltas joined are the content.

        Raises shared.errors.ModelError. When that happens after a delta, the text given so far is
        void and the caller decides whether to ask again. What `on_delta` raises goes up unchanged,
        and the call is given up.
        """
        ...
