"""A count together with the places it was counted from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """A number about the code; `evidence` lists what was counted, one line each."""

    value: float
    evidence: tuple[str, ...] = ()


def count_of(evidence: list[str]) -> Count:
    """Count the lines of evidence."""
    return Count(len(evidence), tuple(evidence))


def share(part: list[str], whole: int) -> Count:
    """Return the listed part of `whole` in per cent."""
    return Count(100 * len(part) / whole if whole else 0.0, tuple(part))
