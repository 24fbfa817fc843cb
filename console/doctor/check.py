"""What came of one check of `shoal doctor`."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["ok", "failed", "skipped"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: what was found, and for a failure what to do."""

    name: str
    outcome: Outcome
    found: str


def ok(name: str, found: str) -> Check:
    """Return a check that found all as it must be."""
    return Check(name, "ok", found)


def failed(name: str, found: str) -> Check:
    """Return a check that found something wrong."""
    return Check(name, "failed", found)
