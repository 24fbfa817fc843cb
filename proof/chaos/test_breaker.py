"""A poisonous chat and an outage in every `make test-all`; `python -m proof.chaos.breaker` measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.breaker import breaker


@pytest.mark.timeout(300)
async def test_one_prompt_that_fails_closes_the_model_for_nobody(tmp_path: Path) -> None:
    """And a provider that is down is left alone until it answers again. How much a wait grows in fifteen seconds on a
    busy machine is noise, unless it is a breaker's."""
    rows = await breaker(tmp_path, seconds=15, chats=12, give_up_alone_s=4, down_s=10)
    broken = {row.name: row.value for row in rows if row.kept is False}
    grown = broken.pop("its p99 grows, times", 1.0)
    assert broken == {}
    assert isinstance(grown, float)
    assert grown < 3
