"""One look at the fleet: as lines for people, and as an object whose keys stay for programs. The
door to rich's printing."""

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
"""A pipe has no width: nothing is left out or cut there."""


KEYS: Final = (
    "at_ms", "problems", "figures", "queues", "processes", "models", "deliveries", "dead_letters",
    "newest_dead_letter", "redis",
)  # fmt: skip


def as_object(found: FleetSnapshot, wrong: Sequence[Problem]) -> dict[str, Any]:
    """Every one of KEYS is always there, whatever its value."""
    letter, names = found.newest_letter, found.models()
    return {
        "at_ms": found.at_ms,
        "problems": msgspec.to_builtins(wrong),
        "figures": msgspec.to_builtins(aggregate(found.processes)),
        "queues": msgspec.to_builtins(found.queues),
        "processes": [_whole(one) for one in found.processes],
        "models": [{"models": names.get(way.route, []), **msgspec.to_builtins(way)} for way in found.ways],
        "deliveries": msgspec.to_builtins(found.outboxes),
        "dead_letters": found.dead_letters,
        "newest_dead_letter": letter
        and {"reference": letter.reference, "reason": letter.reason, "at_ms": letter.at_ms},
        "redis": msgspec.to_builtins(found.redis),
    }


def as_lines(found: FleetSnapshot, wrong: Sequence[Problem], width: int) -> list[Text]:
    """What is wrong, then everything else, with empty lines between."""
    lines = [summary(wrong), *render_problems(wrong, width)]
    for block in blocks(found, width):
        lines += [*([Text()] if block.spaced else []), *block.lines]
    return lines


def print_lines(lines: Iterable[Text]) -> None:
    """Colours on a terminal only, and not with NO_COLOR."""
    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def out_width() -> int:
    """How wide a line may be on standard output."""
    return Console().width if sys.stdout.isatty() else WIDE


def _whole(record: msgspec.Struct) -> dict[str, Any]:
    """With the fields that have their default, too."""
    values = ((field, getattr(record, field)) for field in record.__struct_fields__)
    return {field: _whole(value) if isinstance(value, msgspec.Struct) else value for field, value in values}
