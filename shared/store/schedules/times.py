"""Ticks of plans: pure functions of plan and time. Only this file uses the cron library."""

from __future__ import annotations

import contextlib
import itertools
import re
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
"""Calendar years in which a tick of a cron expression is searched: past the horizon, and past the
eight years between two leap days around a century without one."""

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_STEPS: Final = (("minute", 60, 60), ("hour", 24, 3600), ("day of the month", 31, 86_400), ("month", 12, 0))
_WEEK: Final = ("day of the week", 7, 86_400)
_STEP: Final = re.compile(r"[^,/]*/(\d{1,6})")
_GAPS: Final = 60
_FIRST_LOOK_MS: Final = 3_600_000


def check_plan(plan: Plan, *, now_ms: int, min_every_s: float) -> int:
    """Return the first tick of a new plan, in ms. Raises BadInput with a text that says what to
    write instead: for a time that is past or too far away, ticks closer than `min_every_s`, and an
    invalid expression or time zone."""
    match plan:
        case EveryPlan(every_ms=every_ms) if every_ms < min_every_s * 1000:
            often = f"every {every_ms / 1000:g} s is too often; at least {min_every_s:g} s"
            raise BadInput("too_often", often)
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
    """Return the first tick after `after_ms`, in ms; None: none (of cron: in ten years)."""
    match plan:
        case EveryPlan(every_ms=every_ms, from_ms=from_ms):
            return from_ms + every_ms * max(1, (after_ms - from_ms) // every_ms + 1)
        case AtPlan() | CronPlan():
            return next(_ticks(plan, after_ms), None)


def ticks_between(plan: Plan, after_ms: int, until_ms: int, *, limit: int) -> list[int]:
    """Return the newest `limit` ticks later than `after_ms`, up to `until_ms`, oldest first."""
    if isinstance(plan, EveryPlan):
        # An interval needs no search: its ticks are multiples.
        newest = plan.from_ms + plan.every_ms * ((until_ms - plan.from_ms) // plan.every_ms)
        newest_first = range(newest, max(after_ms, plan.from_ms), -plan.every_ms)[:limit]
        return list(reversed(newest_first))
    # From the end, in wider and wider steps, no wider than what was found so far asks for: a year
    # of minutes would hold everybody up.
    found: list[int] = []
    end_ms = until_ms
    back_ms = _FIRST_LOOK_MS
    while True:
        start_ms = max(after_ms, end_ms - back_ms)
        ticks = _ticks(plan, start_ms)
        found = [*itertools.takewhile(end_ms.__ge__, ticks), *found]
        if len(found) >= limit or start_ms == after_ms:
            return found[-limit:]
        end_ms = start_ms
        seen_ms = until_ms - start_ms
        missing_ms = seen_ms * (limit - len(found)) // max(1, len(found))
        back_ms = min(4 * seen_ms, missing_ms + _FIRST_LOOK_MS)


def check_timezone(name: str) -> None:
    """Check an IANA name. Raises BadInput."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        wrong = f"{name!r} is no time zone; use an IANA name such as 'Europe/Berlin'"
        raise BadInput("bad_zone", wrong) from None


def usable_timezone(name: str) -> str:
    """Return an IANA name as it is, `""` for anything else."""
    with contextlib.suppress(BadInput):
        if name:
            check_timezone(name)
            return name
    return ""


def cron_fields(expression: str) -> str:
    """Return the five fields of an expression, also of one such as `@daily`."""
    return _MACROS.get(expression.strip().lower(), expression)


def check_steps(expression: str) -> None:
    """Check that no step is larger than its field: `*/90` in the minutes would run each hour. Raises
    BadInput with the interval to ask for instead, in seconds."""
    fields = cron_fields(expression).split()
    for field, (name, size, unit_s) in zip(fields, (*_STEPS, _WEEK), strict=False):
        for found in _STEP.finditer(field):
            step = int(found[1])
            if step > size:
                instead = "give the months by their numbers, or a single time with at"
                if unit_s:
                    unit = name.split()[0]
                    instead = f"for every {step} {unit}s give every_seconds={step * unit_s} instead of cron_expr"
                raise BadInput("bad_expression", f"a {name} cannot have the step {found[0]!r}; {instead}")


def _check_cron(plan: CronPlan, now_ms: int, min_every_s: float) -> None:
    check_timezone(plan.timezone)
    text = cron_fields(plan.expression)
    if len(text.split()) != FIELDS or len(text) > EXPRESSION_CHARS:
        raise BadInput(
            "bad_expression",
            f"{text[:EXPRESSION_CHARS]!r} is no cron expression: it has five fields, minute hour "
            "day-of-month month day-of-week, such as '30 8 * * 1-5'",
        )
    try:
        ticks = _ticks(plan, now_ms)
        tick = next(ticks, None)
        for _, following in zip(range(_GAPS), ticks, strict=False):
            if tick is not None and following - tick < min_every_s * 1000:
                raise BadInput("too_often", f"{text!r} is too often; at least {min_every_s:g} s")
            tick = following
    except CronSimError as exc:
        raise BadInput(
            "bad_expression",
            f"{text!r} is no cron expression ({exc}): write minute hour day-of-month month "
            "day-of-week, such as '30 8 * * 1-5'",
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


def _ticks(plan: AtPlan | CronPlan, after_ms: int) -> Iterator[int]:
    """Yield the following ticks. An hour that the clock repeats is not repeated; a time that it
    skips comes at the end of the gap."""
    if isinstance(plan, AtPlan):
        if plan.at_ms > after_ms:
            yield plan.at_ms
        return
    last = after_ms
    start = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(plan.timezone))
    for found in _Ahead(cron_fields(plan.expression), start):
        tick = int(found.timestamp() * 1000)
        # The library counts by wall-clock time: in a repeated hour it may go back in time.
        if tick > last:
            last = tick
            yield tick
