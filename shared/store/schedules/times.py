"""Ticks of plans: pure functions of the plan and a time. The only file that uses the cron
library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from shared.errors import BadInput
from shared.messages.schedule import AtPlan, CronPlan, EveryPlan, Plan

EXPRESSION_CHARS: Final = 100
FIELDS: Final = 5
HORIZON_MS: Final = 10 * 366 * 86_400_000
"""A plan without a tick within this time counts as a mistake."""

HORIZON_YEARS: Final = 11
"""Calendar years in which a tick of a cron expression is searched: past the horizon, and past
the eight years between two leap days around a century without one."""

_GAPS: Final = 60
_FIRST_LOOK_MS: Final = 3_600_000


def check_plan(plan: Plan, *, now_ms: int, min_every_s: float) -> int:
    """Return the first tick of a new plan, in ms.

    Raises BadInput with a text that says what to write instead: for a time that is past or too
    far away, ticks closer than `min_every_s`, and an invalid expression or time zone.
    """
    match plan:
        case EveryPlan(every_ms=every_ms) if every_ms < min_every_s * 1000:
            raise BadInput("too_often", f"every {every_ms / 1000:g} s is too often; at least {min_every_s:g} s")
        case CronPlan():
            _check_cron(plan, now_ms, min_every_s)
    first = next_tick(plan, now_ms)
    if first is None:
        past = "is past" if isinstance(plan, AtPlan) else "does not come round within ten years"
        raise BadInput("never", f"that time {past}; give one that is to come")
    if first - now_ms > HORIZON_MS:
        raise BadInput("too_far", "that time is more than ten years away; give an earlier one")
    return first


def next_tick(plan: Plan, after_ms: int) -> int | None:
    """Return the first tick later than `after_ms`, in ms; None when there is none, for a cron
    expression within ten years."""
    match plan:
        case EveryPlan(every_ms=every_ms, from_ms=from_ms):
            return from_ms + every_ms * max(1, (after_ms - from_ms) // every_ms + 1)
        case AtPlan() | CronPlan():
            return next(_ticks(plan, after_ms), None)


def ticks_between(plan: Plan, after_ms: int, until_ms: int, *, limit: int) -> list[int]:
    """Return the newest `limit` ticks later than `after_ms` and not later than `until_ms`,
    oldest first."""
    if isinstance(plan, EveryPlan):
        newest = plan.from_ms + plan.every_ms * ((until_ms - plan.from_ms) // plan.every_ms)
        # An interval needs no search: its ticks are multiples.
        ticks = (newest - plan.every_ms * back for back in reversed(range(limit)))
        return [tick for tick in ticks if tick > max(after_ms, plan.from_ms)]
    # From the end, in wider and wider steps, no wider than what was found so far asks for: a year
    # of minutes would hold everybody up.
    found: list[int] = []
    end_ms, back_ms = until_ms, _FIRST_LOOK_MS
    while True:
        start_ms = max(after_ms, end_ms - back_ms)
        found = [*_ticks_until(plan, start_ms, end_ms), *found]
        if len(found) >= limit or start_ms == after_ms:
            return found[-limit:]
        end_ms, seen_ms = start_ms, until_ms - start_ms
        back_ms = min(4 * seen_ms, seen_ms * (limit - len(found)) // max(1, len(found)) + _FIRST_LOOK_MS)


def check_timezone(name: str) -> None:
    """Check an IANA name. Raises BadInput."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadInput("bad_zone", f"{name!r} is no time zone; use an IANA name such as 'Europe/Berlin'") from None


def _check_cron(plan: CronPlan, now_ms: int, min_every_s: float) -> None:
    check_timezone(plan.timezone)
    fields = plan.expression.split()
    if len(fields) != FIELDS or len(plan.expression) > EXPRESSION_CHARS:
        raise BadInput(
            "bad_expression",
            f"{plan.expression[:EXPRESSION_CHARS]!r} is no cron expression: it has five fields, minute hour "
            "day-of-month month day-of-week, such as '30 8 * * 1-5'",
        )
    try:
        ticks = _ticks(plan, now_ms)
        tick = next(ticks, None)
        for _, following in zip(range(_GAPS), ticks, strict=False):
            if tick is not None and following - tick < min_every_s * 1000:
                raise BadInput("too_often", f"{plan.expression!r} is too often; at least {min_every_s:g} s")
            tick = following
    except CronSimError as exc:
        raise BadInput(
            "bad_expression",
            f"{plan.expression!r} is no cron expression ({exc}): write minute hour day-of-month month day-of-week, "
            "such as '30 8 * * 1-5'",
        ) from None


class _Ahead(CronSim):
    """A cron iterator that gives up after some years. The library alone searches half a century
    for each tick, which takes a tenth of a second for a Monday that is the 29th of February."""

    def __init__(self, expression: str, after: datetime) -> None:
        super().__init__(expression, after)
        self._last_year = after.year + HORIZON_YEARS

    def advance_month(self) -> None:
        super().advance_month()
        if self.dt.year > self._last_year:
            raise StopIteration


def _ticks_until(plan: AtPlan | CronPlan, after_ms: int, until_ms: int) -> Iterator[int]:
    return itertools.takewhile(lambda tick: tick <= until_ms, _ticks(plan, after_ms))


def _ticks(plan: AtPlan | CronPlan, after_ms: int) -> Iterator[int]:
    """Yield the following ticks. An hour that the clock repeats is not repeated; a time that it
    skips comes at the end of the gap.

    The library counts such hours by wall-clock time, so that within one it may return a time in
    the past.
    """
    if isinstance(plan, AtPlan):
        if plan.at_ms > after_ms:
            yield plan.at_ms
        return
    last = after_ms
    for found in _Ahead(plan.expression, datetime.fromtimestamp(after_ms / 1000, ZoneInfo(plan.timezone))):
        tick = int(found.timestamp() * 1000)
        if tick > last:
            last = tick
            yield tick
