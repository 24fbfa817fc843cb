"""Short runs in every `make test-all`; `python -m proof.chaos --minutes 30` and its neighbours are the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.__main__ import Plan, chaos
from proof.chaos.clock import FALLS_S, falls
from proof.chaos.failover import failovers


@pytest.mark.timeout(300)
async def test_a_fleet_under_fire_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    """Kills, drains, pauses, cut connections, restarts of Redis, full memory and disk, every one or two seconds: all
    counts are 0."""
    plan = Plan(seconds=12, surely=("fill memory", "kill worker", "fill disk", "kill group", "lose answers"))
    run = await chaos(tmp_path, plan, seed=20, people=8, lease_s=3)
    assert run.left == []
    assert {name: count for name, count in run.verdict.wrongs.items() if count} == {}
    assert run.waiting == set()
    assert sum(run.done.values()) >= len(plan.surely)
    assert all(run.done[name] for name in plan.surely)
    assert run.verdict.accepted > 20


@pytest.mark.timeout(300)
async def test_a_fleet_goes_on_after_each_kind_of_fail_over(tmp_path: Path) -> None:
    """Connections kept, cut and killed by the server, and a crash with the replica behind: nothing is lost that a
    client does not send again, and no unsafe tool runs twice when its intent waits for the replica."""
    rows = await failovers(tmp_path, planned=3, crashes=1, copies=2)
    # How soon it goes on is measured by the long run: other tests keep this machine busy.
    assert [row for row in rows if row.kept is False and not row.name.startswith("answers again")] == []


@pytest.mark.timeout(300)
async def test_a_clock_that_falls_back_keeps_nobody_waiting(tmp_path: Path) -> None:
    """By a minute with all workers alive, by an hour with a group killed: nobody waits for half of the shorter one. How
    long they wait is measured by the long run."""
    rows = await falls(tmp_path, rounds=2, lease_s=5)
    assert [row for row in rows if row.kept is False and row.name != "max s"] == []
    assert max(float(str(row.value)) for row in rows if row.name == "max s") < min(FALLS_S[:2]) / 2
