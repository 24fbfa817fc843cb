"""Token limits of a run: the size of its prompt, and the usage it is charged for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from worker.agent.model.model import TokenUsage, ToolSpec
from worker.agent.ports import NULL_PORTS, Allowance

Messages = Sequence[Mapping[str, Any]]

CHARS_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 4  # tokens of the frame of one message (role, separators)
IMAGE_TOKENS: Final = 1600  # of one image of any size: about the most that a large provider counts


class Meter:
    """Adds up the usage of one run, and charges each call at once: the run may fail later."""

    def __init__(self, allowance: Allowance = NULL_PORTS) -> None:
        self.used = TokenUsage()
        self.warning: str | None = None
        """The latest warning of the allowance."""
        self.last = TokenUsage()
        """Usage of the newest call."""
        self._allowance = allowance
        self._since_pop = TokenUsage()

    async def add(self, usage: TokenUsage) -> None:
        self.used += usage
        self.last = usage
        self._since_pop += usage
        self.warning = await self._allowance.count(usage) or self.warning

    def add_estimate(self, messages: Messages, tools: Sequence[ToolSpec] = (), *, output: str = "") -> None:
        """Charge a call that ended without a reply after the model had begun on it, and had written
        `output`. Its provider charges for it and does not say how much: the allowance gets an
        estimate. `used` has only the numbers of providers."""
        written = _size(output) // CHARS_PER_TOKEN
        self._allowance.count_later(TokenUsage(estimate_tokens(messages, tools), written))

    def pop_usage(self) -> TokenUsage:
        popped = self._since_pop
        self._since_pop = TokenUsage()
        return popped


class Budget(msgspec.Struct, frozen=True):
    """The token limits of a model: `context_tokens` in all (0: unknown, nothing is checked). A
    prompt may use the share `compact_at` of them, and must leave space for the reply and a buffer.
    A reply limit close to a small context still leaves an eighth of it for the prompt, because a
    prompt limit near zero would make every call impossible."""

    context_tokens: int = 0
    max_output_tokens: int = 4096
    buffer_tokens: int = 1024
    compact_at: float = 0.8

    @property
    def prompt_tokens(self) -> int:
        """The most tokens that a prompt should have; 0 if that is unknown."""
        left = self.context_tokens - self.max_output_tokens - self.buffer_tokens
        return int(min(max(left, self.context_tokens // 8), self.context_tokens * self.compact_at))


def estimate_tokens(messages: Messages, tools: Sequence[ToolSpec] = ()) -> int:
    """Estimate the tokens of a prompt: one for four bytes of text, a fixed number for an image.
    That is a little high for English and about right for scripts of three bytes a character. An
    estimate needs no tokenizer; the share that `Budget` leaves free covers its error."""
    size = 0
    for message in messages:
        for value in message.values():
            # Nearly every value is plain text, which must not cost a call each in a long history.
            size += len(value) if type(value) is str and value.isascii() else _size(value)
    size += sum(len(tool.name) + _size(tool.description) + _size(tool.parameters) for tool in tools)
    return size // CHARS_PER_TOKEN + MESSAGE_TOKENS * len(messages)


def _size(value: Any) -> int:
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        case {"type": "image_url"}:
            return IMAGE_TOKENS * CHARS_PER_TOKEN
        case Mapping():
            return sum(len(str(key)) + _size(item) for key, item in value.items())
        case list() | tuple():
            return sum(_size(item) for item in value)
        case _:
            return 4
