"""A snapshot as lines for people, by rich, and as an object with stable keys for programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from console.grid import out_width, print_lines
from console.top.fleet_snapshot import FleetSnapshot, SnapshotPoller, aggregate
from console.top.problems import problems
from console.top.view import blocks, render_problems, summary


def _whole(record: msgspec.Struct) -> dict[str, Any]:
    """Convert a record, including fields that have their default."""
    # The keys are those on the wire: programs rely on them, whatever our attributes are called.
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    values = {key: getattr(record, field) for key, field in names}
    return {key: _whole(value) if isinstance(value, msgspec.Struct) else value for key, value in values.items()}


def _models(found: FleetSnapshot) -> list[dict[str, Any]]:
    names = found.models()
    return [{"models": names.get(way.route, []), **msgspec.to_builtins(way)} for way in found.provider_routes]


def _newest_letter(found: FleetSnapshot) -> dict[str, Any] | None:
    letter = found.newest_letter
    names = ("reference", "reason", "at_ms")
    return None if letter is None else {name: getattr(letter, name) for name in names}


FACTS: Final[dict[str, Callable[[FleetSnapshot], object]]] = {
    "at_ms": lambda found: found.at_ms,
    "problems": problems,
    "figures": lambda found: aggregate(found.processes),
    "queues": lambda found: found.queues,
    "processes": lambda found: [_whole(one) for one in found.processes],
    "models": _models,
    "model_waits": lambda found: found.model_waits,
    "deliveries": lambda found: found.outboxes,
    "dead_letters": lambda found: found.dead_letters,
    "newest_dead_letter": _newest_letter,
    "redis": lambda found: found.redis,
}


def as_object(found: FleetSnapshot | None) -> dict[str, Any]:
    """Return an object that always has all keys of FACTS; without a snapshot with None."""
    return {key: found and msgspec.to_builtins(fact(found)) for key, fact in FACTS.items()}


def print_snapshot(found: FleetSnapshot) -> None:
    """Print problems, then everything else, with empty lines between blocks. In a pipe nothing is
    left out or cut."""
    width = out_width()
    wrong = problems(found)
    lines = [summary(wrong), *render_problems(wrong, width)]
    for block in blocks(found, width):
        lines += [*([Text()] if block.spaced else []), *block.lines]
    print_lines(lines)


async def print_observations(poller: SnapshotPoller, every_s: float, *, as_json: bool) -> None:
    """Print a snapshot every `every_s` until cancelled or the reader is gone, also while Redis is
    unavailable. As JSON it always has every key; without Redis all but `away` are null."""
    while True:
        look = await poller.poll()
        if as_json:
            away = look.away and {"since_ms": round(look.away.since * 1000), "why": look.away.why}
            click.echo(json.dumps({"away": away, **as_object(None if away else look.found)}))
        else:
            if look.away is not None:
                click.echo(look.away.why, err=True)
            elif look.found is not None:
                print_snapshot(look.found)
            click.echo()
        await asyncio.sleep(every_s)
