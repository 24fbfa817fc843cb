"""How much of a measurement is wanted."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`quick` is a look in seconds whether all of it works: its figures mean little. `rounds` 0 is the bench's own
    number. `peer` is the Python of an environment with another program in it, for the bench that needs one."""

    quick: bool = False
    rounds: int = 0
    peer: str = ""

    def of(self, whole: T, quick: T) -> T:
        """One of both."""
        return quick if self.quick else whole

    def repeats(self, whole: int) -> int:
        """How often each side is measured."""
        return self.rounds or self.of(whole, 1)
