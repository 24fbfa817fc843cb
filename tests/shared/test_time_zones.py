"""Time zones by the names that people use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from shared.errors import BadInput
from shared.time_zones import find_timezone

NAMES: Final = {
    "Europe/Berlin": "Europe/Berlin",
    "europe/berlin": "Europe/Berlin",
    "EUROPE/BERLIN": "Europe/Berlin",
    " America/New York ": "America/New_York",
    "america/new_york": "America/New_York",
    "america/port of spain": "America/Port_of_Spain",
    "US/Pacific": "US/Pacific",
    "us/pacific": "US/Pacific",
    "Asia/Beijing": "Asia/Shanghai",
    "Beijing": "Asia/Shanghai",
    "asia/mumbai": "Asia/Kolkata",
    "America/San Francisco": "America/Los_Angeles",
    "Berlin": "Europe/Berlin",
    "new york": "America/New_York",
    "PST": "America/Los_Angeles",
    "pdt": "America/Los_Angeles",
    "EDT": "America/New_York",
    "EST": "EST",
    "CET": "CET",
    "cet": "CET",
    "CEST": "Europe/Berlin",
    "JST": "Asia/Tokyo",
    "utc": "UTC",
    "Z": "UTC",
    "Pacific Time": "America/Los_Angeles",
    "Eastern Standard Time": "America/New_York",
    "China Standard Time": "Asia/Shanghai",
    "W. Europe Standard Time": "Europe/Berlin",
    "Central European Summer Time": "Europe/Berlin",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_common_name_finds_its_zone(name: str) -> None:
    """In any case, with blanks, by city, by abbreviation."""
    assert find_timezone(name).lower() == NAMES[name].lower()
    ZoneInfo(find_timezone(name))


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC+8", 8),
        ("utc +8", 8),
        ("GMT-5", -5),
        ("GMT+0", 0),
        ("UTC+08:00", 8),
        ("+0800", 8),
        ("-03:00", -3),
        ("UTC\u22127", -7),
        ("UTC+5:30", 5.5),
        ("UTC+05:45", 5.75),
        ("UTC+14", 14),
    ],
)
def test_an_offset_is_a_zone(name: str, hours: float) -> None:
    """East of Greenwich is ahead."""
    assert datetime(2026, 7, 1, tzinfo=ZoneInfo(find_timezone(name))).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CST", "'CST' may be several time zones; write 'America/Chicago' or 'Asia/Shanghai'"),
        ("IST", "may be several"),
        ("BST", "may be several"),
        ("Mars/Olympus", "'Mars/Olympus' is not a time zone; use an IANA name such as 'Europe/Berlin'"),
        ("", "is not a time zone"),
        ("UTC+15", "is not a time zone"),
        ("UTC+5:13", "is not a time zone"),
        ("../../etc/passwd", "is not a time zone"),
    ],
)
def test_a_name_that_is_unknown_or_ambiguous_says_what_to_write(name: str, says: str) -> None:
    """A wrong guess would come at a wrong hour."""
    with pytest.raises(BadInput) as raised:
        find_timezone(name)
    assert says in raised.value.message
