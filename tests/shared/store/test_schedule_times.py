"""When plans come round: clocks that are put forward and back, leap days, and mistakes."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import BadInput
from shared.messages.schedule import AtPlan, CronPlan, EveryPlan, Plan, Schedule, describe_plan, local_time
from shared.store.schedules.times import HORIZON_MS, check_plan, check_timezone, next_tick, ticks_between

BERLIN = "Europe/Berlin"
HOUR = 3_600_000
NOW = 1_795_262_400_000  # Saturday, 2026-11-21, 12:00 UTC


def ms(text: str, zone: str = "UTC") -> int:
    when = datetime.fromisoformat(text)
    return int((when if when.tzinfo else when.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def utc(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}"


def following(plan: Plan, after: int, many: int) -> list[str]:
    ticks = []
    for _ in range(many):
        tick = next_tick(plan, after)
        assert tick is not None
        ticks.append(utc(tick))
        after = tick
    return ticks


@pytest.mark.parametrize(
    ("expression", "zone", "after", "ticks"),
    [
        # 02:30 does not exist on this day: it comes once, when the clock has been put forward, at 03:00.
        ("30 2 * * *", BERLIN, "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        # 02:30 comes twice on this day: it is run the first time.
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        # Seen from between the two: it is over for this day.
        ("30 2 * * *", BERLIN, "2026-10-25 02:10+01:00", ["2026-10-26 01:30"]),
        # Two times that fall on the same moment are one.
        ("0,30 2 * * *", BERLIN, "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:00", "2026-03-30 00:30"]),
        # What comes every hour comes in every real hour.
        ("0 * * * *", BERLIN, "2026-03-29 00:30", ["2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 02:00"]),
        ("0 * * * *", BERLIN, "2026-10-25 01:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
        # A clock that is put by half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        ("0 9 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 09:00", "2032-02-29 09:00"]),
        ("0 9 29 2 *", "UTC", "2096-03-01 00:00", ["2104-02-29 09:00"]),
        ("0 9 31 * *", "UTC", "2026-01-31 10:00", ["2026-03-31 09:00", "2026-05-31 09:00"]),
        ("0 9 L * *", "UTC", "2028-02-01 00:00", ["2028-02-29 09:00", "2028-03-31 09:00"]),
        ("30 8 * * 1-5", BERLIN, "2026-11-20 12:00", ["2026-11-23 07:30", "2026-11-24 07:30"]),
        ("0 0 1 1 *", "Pacific/Kiritimati", "2026-06-01 00:00", ["2026-12-31 10:00"]),
    ],
)
def test_a_cron_expression_follows_the_clock_of_its_place(
    expression: str, zone: str, after: str, ticks: list[str]
) -> None:
    """A time that a clock leaves out is run once, at the end of the gap; one that it repeats is run once."""
    assert following(CronPlan(expression, zone), ms(after, zone), len(ticks)) == ticks


def test_every_counts_the_time_that_passes() -> None:
    """A day of 23 hours and one of 25 change nothing."""
    start = ms("2026-03-28 12:00", BERLIN)
    assert following(EveryPlan(24 * HOUR, start), start, 2) == ["2026-03-29 11:00", "2026-03-30 11:00"]
    assert next_tick(EveryPlan(HOUR, start), start - 10 * HOUR) == start + HOUR, "never before it was made"
    assert next_tick(EveryPlan(HOUR, start), start + 5 * HOUR) == start + 6 * HOUR
    assert next_tick(EveryPlan(HOUR, start), start + 5 * HOUR + 1) == start + 6 * HOUR


def test_a_single_time_comes_once() -> None:
    """And after it nothing."""
    assert next_tick(AtPlan(NOW), NOW - 1) == NOW
    assert next_tick(AtPlan(NOW), NOW) is None


PLANS = st.one_of(
    st.builds(AtPlan, st.integers(NOW - 10**10, NOW + 10**10)),
    st.builds(EveryPlan, st.integers(1, 10**9), st.integers(NOW - 10**10, NOW + 10**10)),
    st.builds(
        lambda minute, hour, day, month, weekday, zone: CronPlan(f"{minute} {hour} {day} {month} {weekday}", zone),
        st.sampled_from(["*", "0", "30", "*/7", "0,30", "59", "10-20"]),
        st.sampled_from(["*", "0", "1", "2", "3", "*/5", "1-3", "23"]),
        st.sampled_from(["*", "1", "28", "29", "*/10", "L"]),
        st.sampled_from(["*", "3", "10", "2,4", "*/2"]),
        st.sampled_from(["*", "0", "1-5", "7"]),
        st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo"]),
    ),
)
CHANGES = [ms(day) for day in ("2026-03-29 00:00", "2026-10-25 00:00", "2026-11-01 05:00", "2026-10-03 15:00")]
TIMES = st.one_of(
    st.integers(NOW - 10**11, NOW + 10**11),
    st.builds(lambda change, by: change + by, st.sampled_from(CHANGES), st.integers(-3 * HOUR, 4 * HOUR)),
)


@given(plan=PLANS, after=TIMES)
@settings(max_examples=150, deadline=None)
def test_the_next_tick_is_always_later_and_later(plan: Plan, after: int) -> None:
    """Never in the past, never the same twice: or a tick would be run again, or for ever."""
    for _ in range(6):
        tick = next_tick(plan, after)
        if tick is None:
            assert not isinstance(plan, EveryPlan)
            return
        assert tick > after
        after = tick


@given(plan=PLANS, after=TIMES, hours=st.integers(0, 200), limit=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_the_ticks_between_are_the_newest_of_those_that_come_one_by_one(
    plan: Plan, after: int, hours: int, limit: int
) -> None:
    """Looking from the end finds in any range what going through it finds."""
    if isinstance(plan, EveryPlan) and plan.every_ms < 60_000:
        plan = EveryPlan(60_000, plan.from_ms)
    until = after + hours * HOUR
    found = ticks_between(plan, after, until, limit=limit)
    assert len(found) <= limit
    assert all(after < tick <= until for tick in found)
    assert all(next_tick(plan, earlier) == later for earlier, later in pairwise(found))
    latest = next_tick(plan, found[-1] if found else after)
    assert latest is None or latest > until


def test_a_year_of_minutes_is_not_gone_through() -> None:
    """What a long outage left behind is found from its end."""
    year = ms("2027-11-21 00:00") - ms("2026-11-21 00:00")
    found = ticks_between(CronPlan("* * * * *", BERLIN), NOW, NOW + year, limit=10)
    assert found == [NOW + year - 60_000 * back for back in range(9, -1, -1)]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (AtPlan(NOW), "is past"),
        (AtPlan(NOW - HOUR), "is past"),
        (AtPlan(NOW + HORIZON_MS + 1), "ten years"),
        (EveryPlan(59_999, NOW), "at least 60 s"),
        (CronPlan("every morning", "UTC"), "five fields"),
        (CronPlan("@reboot", "UTC"), "five fields"),
        (CronPlan("* * * * * *", "UTC"), "five fields"),
        (CronPlan("61 * * * *", "UTC"), "Bad minute"),
        (CronPlan("0 0 * * MONDAY", "UTC"), "Bad day-of-week"),
        (CronPlan("0 0 30 2 *", "UTC"), "Bad day-of-month"),
        (CronPlan("0 " * 200, "UTC"), "five fields"),
        (CronPlan("0 9 * * *", "Mars/Olympus"), "IANA name"),
        (CronPlan("0 9 * * *", "../../etc/passwd"), "IANA name"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_what_to_write(plan: Plan, message: str) -> None:
    """Also one that would come too often."""
    with pytest.raises(BadInput, match=message):
        check_plan(plan, now_ms=NOW, min_every_s=60)


@pytest.mark.parametrize("expression", ["0 0 * 2 1#5", "0 0 */30 2 1", "0 9 29 2 */7", "59 23 * 2 0#5,1#5"])
def test_an_expression_is_not_looked_for_further_than_the_horizon(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a century for each of 60 ticks would hold the event loop for a tenth of a second."""
    months = 0
    look = CronSim.advance_month

    def count(self: CronSim) -> None:
        nonlocal months
        months += 1
        look(self)

    monkeypatch.setattr(CronSim, "advance_month", count)
    with contextlib.suppress(BadInput):
        check_plan(CronPlan(expression, BERLIN), now_ms=NOW, min_every_s=60)
    assert 0 < months < 100


def test_an_expression_that_comes_round_too_late_is_refused() -> None:
    """The fifth Monday of a February comes every 28 years."""
    with pytest.raises(BadInput, match="ten years"):
        check_plan(CronPlan("0 0 * 2 1#5", "UTC"), now_ms=NOW, min_every_s=60)


@pytest.mark.parametrize("expression", ["* * * * *", "0 * * * *", "30 8 * * 1-5"])
def test_missed_ticks_are_counted_without_walking_through_many_more(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten years, too."""
    looked = 0
    look = CronSim.__next__

    def count(self: CronSim) -> datetime:
        nonlocal looked
        looked += 1
        return look(self)

    monkeypatch.setattr(CronSim, "__next__", count)
    assert len(ticks_between(CronPlan(expression, BERLIN), NOW - HORIZON_MS, NOW, limit=250)) == 250
    assert looked < 3 * 250


def test_an_expression_may_be_too_often_at_times() -> None:
    """What counts is the smallest gap, wherever it is."""
    check_plan(CronPlan("0,1 9 * * *", "UTC"), now_ms=NOW, min_every_s=60)
    with pytest.raises(BadInput, match="too often"):
        check_plan(CronPlan("0,1 9 * * *", "UTC"), now_ms=NOW, min_every_s=120)
    assert check_plan(CronPlan("0 9 29 2 *", "UTC"), now_ms=NOW, min_every_s=60) == ms("2028-02-29 09:00")


def test_a_zone_is_a_name() -> None:
    """No path is followed, and a folder is none."""
    for name in ("", "Europe", "/etc/passwd", "a\x00b"):
        with pytest.raises(BadInput, match="IANA"):
            check_timezone(name)
    check_timezone("Asia/Kolkata")


def test_plans_and_times_are_described_in_words() -> None:
    """As people read them in the chat."""
    plans: list[tuple[Plan, str]] = [
        (AtPlan(NOW), "once, at 2026-11-21 13:00 (Saturday, Europe/Berlin)"),
        (EveryPlan(90_000, NOW), "every 90 s"),
        (EveryPlan(1_800_000, NOW), "every 30 min"),
        (EveryPlan(2 * 24 * HOUR, NOW), "every 2 d"),
        (CronPlan("30 8 * * 1-5", BERLIN), "at '30 8 * * 1-5' (Europe/Berlin)"),
    ]
    for plan, described in plans:
        schedule = Schedule(id="x", channel="c", chat_id="1", owner="o", text="t", plan=plan, timezone=BERLIN)
        assert describe_plan(schedule) == described
    assert local_time(NOW, "Asia/Kolkata") == "2026-11-21 17:30 (Saturday, Asia/Kolkata)"
