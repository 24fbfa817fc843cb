"""Whether calls of a platform came no faster than it takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway.platform.protocol import Rate
from tests.contracts.channels.bench import Call

LATE_S: Final = 1.0
"""A call is counted before it is made; on a machine with much to do it arrives so much later than another one."""

_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {"all": ("send", "edit"), "posts": ("send",), "edits": ("edit",)}


def check_pace(calls: Iterable[Call], rates: Iterable[Rate], *, is_group: Callable[[str], bool]) -> None:
    """Raises AssertionError with the rate that was not kept. "Is typing" is left out: it is no message."""
    for rate in rates:
        found = defaultdict[str, list[float]](list)
        for call in calls:
            if call.kind in _COUNTED[rate.of] and (rate.scope != "group" or is_group(call.chat)):
                found["" if rate.scope == "bot" else call.chat].append(call.at)
        for where, at in found.items():
            _check(sorted(at), rate, where)


def _check(at: list[float], rate: Rate, where: str) -> None:
    """A bucket with the burst in it, filled again with time, never runs dry."""
    most = rate.burst + 1.5 + rate.per_s * LATE_S
    left, before = most, at[0]
    for number, now in enumerate(at, 1):
        left = min(most, left + (now - before) * rate.per_s) - 1
        before = now
        assert left >= 0, f"{rate} was not kept in {where!r}: call {number} of {len(at)} came too soon"
