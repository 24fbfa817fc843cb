"""A minute under fire in every `make test`; `python -m tests.chaos --minutes 30` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import chaos


@pytest.mark.timeout(240)
async def test_a_fleet_under_fire_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    """Kills, drains, pauses, cut connections and restarts of Redis, every one or two seconds: all counts are 0."""
    verdict, done, waiting = await chaos(tmp_path, seconds=45, seed=20, people=8, lease_s=3)
    assert {name: count for name, count in verdict.wrongs.items() if count} == {}
    assert waiting == set()
    assert sum(done.values()) > 15
    assert verdict.accepted > 100
