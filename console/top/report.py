"""A snapshot as lines for people, and as an object with stable keys for programs. Uses rich to
print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from console.top.aggregates import aggregate
from console.top.fleet_snapshot import FleetSnapshot
from console.top.problems import Problem
from console.top.view import blocks, render_problems, summary

WIDE: Final = 1000
"""Width used for a pipe, where nothing is left out or cut."""


KEYS: Final = (
    "at_ms", "problems", "figures", "queues", "processes", "models", "deliveries", "dead_letters",
    "newest_dead_letter", "redis",
)  # fmt: skip


def as_object(found: FleetSnapshot, wrong: Sequence[Problem]) -> dict[str, Any]:
    """Return an object that always has all KEYS."""
    letter, names = found.newest_letter, found.models()
    return {
        "at_ms": found.at_ms,
        "problems": msgspec.to_builtins(wrong),
        "figures": msgspec.to_builtins(aggregate(found.processes)),
        "queues": msgspec.to_builtins(found.queues),
        "processes": [_whole(one) for one in found.processes],
        "models": [{"models": names.get(way.route, []), **msgspec.to_builtins(way)} for way in found.provider_routes],
        "deliveries": msgspec.to_builtins(found.outboxes),
        "dead_letters": found.dead_letters,
        "newest_dead_letter": letter
        and {"reference": letter.reference, "reason": letter.reason, "at_ms": letter.at_ms},
        "redis": msgspec.to_builtins(found.redis),
    }


def as_lines(found: FleetSnapshot, wrong: Sequence[Problem], width: int) -> list[Text]:
    """Render problems, then everything else, with empty lines between blocks."""
    lines = [summary(wrong), *render_problems(wrong, width)]
    for block in blocks(found, width):
        lines += [*([Text()] if block.spaced else []), *block.lines]
    return lines


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines, in colour only on a terminal and without NO_COLOR."""
    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def out_width() -> int:
    """Return the width of standard output."""
    return Console().width if sys.stdout.isatty() else WIDE


def _whole(record: msgspec.Struct) -> dict[str, Any]:
    """Convert a record, including fields that have their default."""
    # The keys are those on the wire: programs rely on them, whatever our attributes are called.
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    values = {key: getattr(record, field) for key, field in names}
    return {key: _whole(value) if isinstance(value, msgspec.Struct) else value for key, value in values.items()}
