"""The time, where it is asked for."""

from __future__ import annotations

import pytest

from shared.clock import Clock
from shared.errors import ToolFailed
from worker.agent.tools.tool import ToolContext
from worker.tools.cron import CurrentTime, CurrentTimeArguments


class Noon(Clock):
    """A clock that stands at Saturday, 2026-11-21, 12:00:00 UTC."""

    def monotonic(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return 1_795_262_400_000


async def current_time(timezone: str | None) -> str:
    context = ToolContext(session="s", turn=1, call_id="c", clock=Noon(), timezone="Europe/Berlin")
    return await CurrentTime().run(CurrentTimeArguments(timezone), context)


@pytest.mark.parametrize(
    ("timezone", "text"),
    [
        (None, "2026-11-21 13:00:00 (Saturday), Europe/Berlin (UTC+01:00)"),
        ("UTC", "2026-11-21 12:00:00 (Saturday), UTC (UTC+00:00)"),
        ("Asia/Kolkata", "2026-11-21 17:30:00 (Saturday), Asia/Kolkata (UTC+05:30)"),
        ("America/Los_Angeles", "2026-11-21 04:00:00 (Saturday), America/Los_Angeles (UTC-08:00)"),
        ("Pacific/Kiritimati", "2026-11-22 02:00:00 (Sunday), Pacific/Kiritimati (UTC+14:00)"),
    ],
)
async def test_the_time_is_given_for_a_zone(timezone: str | None, text: str) -> None:
    """The user's own zone by default; day and offset leave no doubt."""
    assert await current_time(timezone) == text


@pytest.mark.parametrize(
    "timezone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe", "a\x00b", "x" * 5000]
)
async def test_what_is_no_zone_is_refused(timezone: str) -> None:
    """Names only: no path is followed."""
    with pytest.raises(ToolFailed, match="IANA name"):
        await current_time(timezone)
