"""The size of a prompt is known before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from worker.agent.limits import Budget, estimate_tokens
from worker.agent.model import ToolSpec


def test_an_estimate_counts_text_calls_and_tools() -> None:
    """Whatever goes out costs tokens."""
    plain: list[dict[str, Any]] = [{"role": "user", "content": "x" * 400}]
    assert 100 <= estimate_tokens(plain) <= 110
    with_call = [*plain, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "arguments": "y" * 400}]}]
    assert estimate_tokens(with_call) > estimate_tokens(plain) + 100
    tool = ToolSpec("t", "d" * 400, {"type": "object", "properties": {"p": {"description": "e" * 400}}})
    assert estimate_tokens(plain, [tool]) > estimate_tokens(plain) + 200


@pytest.mark.parametrize(
    ("budget", "tokens", "over"),
    [
        (Budget(context_tokens=0), 10**9, False),
        (Budget(context_tokens=100_000), 80_000, False),
        (Budget(context_tokens=100_000), 80_001, True),
        (Budget(context_tokens=10_000, max_output_tokens=8_000, buffer_tokens=500), 1_500, False),
        (Budget(context_tokens=10_000, max_output_tokens=8_000, buffer_tokens=500), 1_501, True),
    ],
)
def test_a_prompt_is_too_big_at_80_percent_or_without_room_for_the_reply(
    budget: Budget, tokens: int, over: bool
) -> None:
    """The nearer of the two limits counts; an unknown context is not checked."""
    assert budget.exceeded_by(tokens) is over
