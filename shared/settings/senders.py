"""How many messages a minute one sender may write: for all channels together, and for a channel of
its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

KEY: Final = "sender_per_minute"
"""Of every channel's table; beside it `inbox.sender_per_minute` holds."""

MOST: Final = 60_000


def senders_by_channel(channels: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """`channels.<name>.sender_per_minute` of the channels that have one."""
    return {name: number for name, table in channels.items() if (number := _number(table.get(KEY))) is not None}


def senders_problems(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each channel whose number is none."""
    for name, table in channels.items():
        if KEY in table and _number(table[KEY]) is None:
            yield f"channels.{name}.{KEY} must be a whole number from 0 to {MOST}, not {str(table[KEY])!r}"


def _number(raw: object) -> int | None:
    """A variable of the environment is text."""
    if isinstance(raw, str) and raw.isascii() and raw.isdecimal():
        raw = int(raw)
    return raw if type(raw) is int and 0 <= raw <= MOST else None
