"""How big a prompt is, and when it must become smaller before the next call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from worker.agent.model import ToolSpec

CHARS_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 4
"""What the frame of one message (role, separators) costs."""

Compact = Callable[[list[dict[str, Any]]], Awaitable[list[dict[str, Any]]]]
"""Makes a prompt smaller: keeps the system text and the newest messages, sums up the rest."""


class Budget(msgspec.Struct, frozen=True):
    """How many tokens a model takes: `context_tokens` in all (0: unknown, nothing is checked)."""

    context_tokens: int = 0
    max_output_tokens: int = 4096
    buffer_tokens: int = 1024

    def exceeded_by(self, tokens: int) -> bool:
        """True when a prompt of `tokens` should be compacted: over 80 % of the context, or no room for the reply."""
        if self.context_tokens <= 0:
            return False
        room = self.context_tokens - self.max_output_tokens - self.buffer_tokens
        return tokens > min(room, self.context_tokens * 0.8)


def estimate_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()) -> int:
    """About how many tokens a prompt has: four characters each, which is a little high for English text.

    An estimate costs no tokenizer, and the 80 % of `Budget` leave room for its error.
    """
    chars = sum(_chars(value) for message in messages for value in message.values())
    chars += sum(len(tool.name) + len(tool.description) + _chars(tool.parameters) for tool in tools)
    return chars // CHARS_PER_TOKEN + MESSAGE_TOKENS * len(messages)


def _chars(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(len(str(key)) + _chars(item) for key, item in value.items())
        case list() | tuple():
            return sum(_chars(item) for item in value)
        case _:
            return 4
