"""A poisonous chat and an outage in every `make test-all`; `python -m proof.chaos.breaker` measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.breaker import breaker


@pytest.mark.timeout(300)
async def test_one_prompt_that_fails_closes_the_model_for_nobody(tmp_path: Path) -> None:
    """And a provider that is down is left alone until it answers again. How long a chat waits, and how much longer than
    without it, is for the program to judge: fifteen seconds on a busy machine do not show it."""
    rows = await breaker(tmp_path, seconds=15, chats=12, give_up_alone_s=4, down_s=10)
    assert [row for row in rows if row.kept is False and not row.name.endswith((", s", "p99 grows, times"))] == []
