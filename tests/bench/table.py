"""Figures as people and programs read them: medians with their extremes, and the machine they are from."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
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


def machine() -> str:
    """Processor, cores, system and Python: a figure means nothing without them."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = named[0] if named else cpu
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, {python}"


def show(title: str, figures: Sequence[Figure], *, notes: Sequence[str] = (), as_json: bool = False) -> None:
    """Print the figures."""
    if as_json:
        told = {
            "bench": title,
            "machine": machine(),
            "figures": [
                {
                    "name": one.name,
                    "unit": one.unit,
                    "median": one.median,
                    "min": min(one.values),
                    "max": max(one.values),
                }
                for one in figures
            ],
            "notes": list(notes),
        }
        print(msgspec.json.encode(told).decode())
        return
    width = max(len(one.name) for one in figures)
    print(f"{title}\n{machine()}\n")
    print(f"{'':{width}}  {'median':>10}  {'min':>10}  {'max':>10}")
    for one in figures:
        print(f"{one.name:{width}}  {one.median:10.3f}  {min(one.values):10.3f}  {max(one.values):10.3f}  {one.unit}")
    for note in notes:
        print(f"\n{note}")
