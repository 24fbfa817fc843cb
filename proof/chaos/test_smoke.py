"""Forty-five seconds under fire in every `make test-all`; `python -m proof.chaos --minutes 30` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.__main__ import Plan, chaos


@pytest.mark.timeout(300)
async def test_a_fleet_under_fire_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    """Kills, drains, pauses, cut connections, restarts of Redis, full memory and disk, every one or two seconds: all
    counts are 0."""
    plan = Plan(seconds=45, surely=("fill memory", "kill worker", "fill disk", "kill group", "lose answers"))
    run = await chaos(tmp_path, plan, seed=20, people=8, lease_s=3)
    assert run.left == []
    assert {name: count for name, count in run.verdict.wrongs.items() if count} == {}
    assert run.waiting == set()
    assert sum(run.done.values()) > 15
    assert all(run.done[name] for name in plan.surely)
    assert run.verdict.accepted > 100
