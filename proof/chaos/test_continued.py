"""Killed workers in the middle of answers, in every `make test-all`; `python -m proof.chaos.continued` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.continued import PROVIDERS, run


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_killed_worker_costs_neither_text_nor_a_second_answer(
    redis_url: str, tmp_path: Path, kind: str
) -> None:
    """Every story is whole, each is asked for once and once more for each kill, and hardly a letter is paid twice."""
    result = await run(tmp_path, redis_url, name=PROVIDERS[kind], waves=1, seconds=8, chats=4, kills=2)
    assert (result.wrong, result.too_many_calls) == (0, 0)
    assert result.kills >= 2
    assert result.paid < 1.25
