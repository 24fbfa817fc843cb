"""What a run may use: how big a prompt may be before it must become smaller, and what a chat may
spend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from worker.agent.model.model import ToolSpec, Usage

CHARS_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 4
"""What the frame of one message (role, separators) costs."""

IMAGE_TOKENS: Final = 1600
"""What one image costs, whatever its size: about the most that a large provider counts for one."""


class Allowance(Protocol):
    """What a chat may use. Asked before every round, told after every call."""

    async def refusal(self) -> str | None:
        """Why no further call may be made, as a sentence for the person; None when one may."""
        ...

    async def spent(self, usage: Usage) -> str | None:
        """A call used so much. A sentence for the person when most of the allowance is gone now,
        else None."""
        ...

    def spent_soon(self, usage: Usage) -> None:
        """A call that was broken off used about so much. Returns at once and raises nothing: the
        turn may be ending because of a cancellation, and what is left to do is done beside it."""
        ...


class Unlimited:
    """The allowance of a turn that may use whatever it needs."""

    async def refusal(self) -> str | None:
        return None

    async def spent(self, usage: Usage) -> str | None:
        return None

    def spent_soon(self, usage: Usage) -> None:
        pass


UNLIMITED: Final = Unlimited()


class Meter:
    """Adds up what a run uses, and tells its allowance at once: a run that breaks off later has
    used it too."""

    def __init__(self, allowance: Allowance = UNLIMITED) -> None:
        self.used = Usage()
        self.warning: str | None = None
        """What the allowance last said about it."""
        self._allowance = allowance
        self._taken = Usage()

    async def add(self, usage: Usage) -> None:
        """One more call was answered."""
        self.used += usage
        self._taken += usage
        self.warning = await self._allowance.spent(usage) or self.warning

    def broke_off(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, said: str = ""
    ) -> None:
        """A call ended without a reply after the model had begun on it, and had said so much.

        Its provider takes money for it and does not say how much: the allowance is told an
        estimate. `used` has only what providers said.
        """
        self._allowance.spent_soon(Usage(estimate_tokens(messages, tools), _size(said) // CHARS_PER_TOKEN))

    def take(self) -> Usage:
        """What was added since the last take."""
        taken, self._taken = self._taken, Usage()
        return taken


class Budget(msgspec.Struct, frozen=True):
    """How many tokens a model takes: `context_tokens` in all (0: unknown, nothing is checked).

    A prompt may have `compact_at` of them, and must leave room for the reply and a buffer. A reply
    that may take nearly all of a small context leaves an eighth of it for the prompt, else nothing
    could be asked.
    """

    context_tokens: int = 0
    max_output_tokens: int = 4096
    buffer_tokens: int = 1024
    compact_at: float = 0.8

    @property
    def prompt_tokens(self) -> int:
        """The most that a prompt should have; 0 when that is unknown."""
        room = self.context_tokens - self.max_output_tokens - self.buffer_tokens
        return int(min(max(room, self.context_tokens // 8), self.context_tokens * self.compact_at))

    def exceeded_by(self, tokens: int) -> bool:
        """Whether a prompt of so many tokens should be compacted."""
        return self.context_tokens > 0 and tokens > self.prompt_tokens


def estimate_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()) -> int:
    """About how many tokens a prompt has: one for four bytes of text, a fixed number for an image.

    That is a little high for English and about right for scripts of three bytes a character. An
    estimate costs no tokenizer, and the share that `Budget` leaves free is there for its error.
    """
    size = 0
    for message in messages:
        for value in message.values():
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
