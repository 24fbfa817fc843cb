"""How long turns stood still after something was done to them, read from what the server saw."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Literal, NamedTuple

from proof.chaos.witness import Event

Until = Literal["taken", "handed over", "progress"]
"""`taken`: until another lease was given out. `handed over`: the same, from the moment at which the old one was given
back. `progress`: until the same lease wrote or another one was given out."""


class Blow(NamedTuple):
    """A fault that was done at `at` (wall clock, seconds) to the leases of `owner`; `""` is everybody."""

    kind: str
    at: float
    owner: str
    until: Until


class Times(NamedTuple):
    """Seconds, of all turns that a kind of fault hit."""

    many: int
    p50: float
    p99: float
    worst: float


def times_of(seconds: Sequence[float]) -> Times:
    """The middle, the ninety-ninth part of a hundred (by nearest rank, so never below a real one) and the worst."""
    if not seconds:
        return Times(0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    return Times(len(ordered), median(ordered), ordered[ceil(0.99 * len(ordered)) - 1], ordered[-1])


def recoveries(blows: Iterable[Blow], events: Mapping[str, Sequence[Event]]) -> dict[str, list[float]]:
    """For each kind of fault, how long each turn that was under work stood still."""
    found: dict[str, list[float]] = defaultdict(list)
    ats = {session: [event.at for event in own] for session, own in events.items()}
    for blow in blows:
        for session, own in events.items():
            seconds = _stood_still(blow, own, bisect_right(ats[session], blow.at))
            if seconds is not None:
                found[blow.kind].append(seconds)
    return dict(found)


def _stood_still(blow: Blow, events: Sequence[Event], after: int) -> float | None:
    """None when the turn was not under work in the hands of `owner`, or ended without ever standing still."""
    if after == 0:
        return None
    held = events[after - 1]
    if held.kind in ("commit", "given back") or not held.lease.startswith(blow.owner):
        return None
    since = blow.at
    for event in events[after:]:
        if event.kind == "acquired":
            return event.at - since
        if event.kind == "commit" and blow.until != "progress":
            return None  # it was written before the blow had its effect
        if blow.until == "progress" and event.kind != "given back":
            return event.at - since
        if blow.until == "handed over" and event.kind == "given back":
            since = event.at
    return None
