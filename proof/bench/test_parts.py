"""Where the time of a turn is said to go."""

from __future__ import annotations

from collections import Counter

import pytest

from proof.bench import parts, sampler
from proof.bench.children import ROOT


def test_the_innermost_known_frame_says_which_part_it_is() -> None:
    """Time in a library belongs to who called it, unless the library is a part of its own."""
    part_of = parts.RULES["worker"]
    assert (
        part_of(("json/encoder.py:encode", "worker/prompts/system.py:text", "worker/turn/turn_agent.py:__call__"))
        == "prompt"
    )
    assert part_of(("structlog/stdlib.py:info", "worker/attempt/run_turn.py:__call__")) == "log"
    assert part_of(("3.11/asyncio/events.py:_run",)) == "event loop"


def test_shares_are_of_all_that_was_seen() -> None:
    """Several looks count as one."""
    seen: list[dict[str, sampler.Stacks]] = [
        {"worker": {("a:f", "b:g"): 3}},
        {"worker": {("a:f", "b:g"): 1, ("c:h",): 4}},
    ]
    stacks = sampler.added(seen)["worker"]
    assert sampler.shares(stacks, lambda stack: stack[0]) == {"a:f": 0.5, "c:h": 0.5}
    assert sampler.hot(Counter(stacks), most=1) == [("a:f", 0.5, 0.5)]


@pytest.mark.parametrize("prefix", sorted(prefix for prefix in parts.OURS))
def test_every_file_of_a_part_is_there(prefix: str) -> None:
    """One that was moved would silently count as `other`."""
    assert (ROOT / prefix).exists() or list((ROOT / prefix).parent.glob(f"{(ROOT / prefix).name}*"))
