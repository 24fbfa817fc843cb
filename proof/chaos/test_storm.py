"""A storm and a hail of crashes in every `make test-all`; `python -m proof.chaos.storm` measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.storm import hail, storm


@pytest.mark.timeout(300)
async def test_two_crashes_of_everybody_cost_those_who_wait_little(tmp_path: Path) -> None:
    """Every turn runs isolated then, all of a worker in one child; nobody is given up."""
    run = await storm(tmp_path / "storm", turns=8, isolate=True)
    assert run.wrongs == dict.fromkeys(run.wrongs, 0)
    assert 1 <= run.children <= 2
    assert run.seconds < 60


@pytest.mark.timeout(300)
async def test_nobody_is_given_up_for_kills_that_nobody_caused(tmp_path: Path) -> None:
    """Workers, children and groups, one after the other."""
    rows = await hail(tmp_path, kills=4, chats=6, seed=3, every_s=1.0, quiet_s=60)
    assert [row.name for row in rows if row.kept is False] == []
