from __future__ import annotations

import gc
from functools import cache
from pathlib import Path

import pytest

from tools.house.files import House, read_house
from tools.house.names import EXCUSED, is_banned
from tools.house.table import SECTIONS, Row

ROOT = Path(__file__).parents[2]
ROWS = [row for rows in SECTIONS.values() for row in rows]
HELD = [row for row in ROWS if row.limit is not None]


@cache
def this_house() -> House:
    """Read and parse this checkout once for all rows."""
    house = read_house(ROOT)
    gc.disable()  # it would look through all trees again and again
    for source in (*house.python, *house.test_python):
        assert source.tree
    gc.freeze()
    gc.enable()
    return house


@pytest.fixture(scope="module", autouse=True)
def house() -> House:
    """Reading takes seconds, which no row has to pay."""
    return this_house()


@pytest.mark.parametrize("row", HELD, ids=lambda row: row.title)
def test_a_count_keeps_its_limit(row: Row) -> None:
    """No change makes the code harder to read than we want."""
    count = row.count(this_house())
    assert row.accepts(count.value), "\n".join(
        [
            f"{row.title}: {count.value:g} today, {row.limit:g} wanted.",
            "`.venv/bin/python -m tools.house --lists` names every place. The last ones are:",
            *count.evidence[-20:],
        ]
    )


def test_every_title_is_unique() -> None:
    """Readers of the JSON find a count by its title."""
    titles = [row.title for row in ROWS]
    assert len(titles) == len(set(titles))


def test_only_banned_identifiers_are_excused_and_each_has_a_reason() -> None:
    """Every excuse is needed and explained."""
    assert all(is_banned(name) and reason for name, reason in EXCUSED.items())
