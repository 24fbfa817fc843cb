"""What is done with a message that comes while a turn runs: the words for it, and who has which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast, get_args

Busy = Literal["queue", "steer", "merge", "interrupt", "reject"]
"""A turn of its own, afterwards; it joins the turn; a burst of them is one turn; it ends the turn;
it is not read."""

POLICIES: Final[tuple[Busy, ...]] = get_args(Busy)
KEY: Final = "busy"
"""Of every channel's table, beside the channel's own keys."""


def busy_by_channel(channels: Mapping[str, Mapping[str, Any]]) -> dict[str, Busy]:
    """`channels.<name>.busy` of the channels that have one."""
    return {name: cast(Busy, str(table[KEY])) for name, table in channels.items() if KEY in table}


def busy_problems(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each channel whose word is none."""
    for name, word in busy_by_channel(channels).items():
        if word not in POLICIES:
            yield f"channels.{name}.{KEY} must be one of {', '.join(map(repr, POLICIES))}, not {str(word)!r}"
