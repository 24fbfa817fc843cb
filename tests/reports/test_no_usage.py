"""A provider that counts no tokens: they are estimated, marked as estimated, and budgets hold."""

from __future__ import annotations

from typing import Any, Final

import pytest

from shared.metrics import MODEL_TOKENS_ESTIMATED
from tests.reports.one_turn import hear, say
from tests.reports.provider import provider, report, text_stream, turn
from worker.agent.model.model import TokenUsage

INPUT: Final = report("p-no-usage.json")
ANSWER_TOKENS: Final = (70, 80)  # at least and at most for the text of the input, 285 letters


def estimated(direction: str) -> float:
    return float(MODEL_TOKENS_ESTIMATED.labels("openai/x", direction)._value.get())


async def test_tokens_are_estimated() -> None:
    """Those of the prompt and of the answer, and the metric says how many."""
    before = estimated("input"), estimated("output")
    async with provider(lambda body: (200, INPUT["stream"])) as served:
        usage = (await turn(served.settings())).usage
    least, most = ANSWER_TOKENS
    assert least <= usage.completion_tokens <= most
    assert usage.prompt_tokens > len("question") // 4
    assert (estimated("input") - before[0], estimated("output") - before[1]) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )


@pytest.mark.parametrize("counts", [{"prompt_tokens": 7, "completion_tokens": 3}, {"completion_tokens": 3}])
async def test_what_a_provider_counts_stands(counts: dict[str, int]) -> None:
    before = estimated("output")
    async with provider(lambda body: (200, text_stream("hello", **counts))) as served:
        usage = (await turn(served.settings())).usage
    assert usage == TokenUsage(counts.get("prompt_tokens", 0), 3)
    assert estimated("output") == before


class Day:
    """An allowance of 300 tokens a day."""

    def __init__(self) -> None:
        self.used = 0

    async def refusal(self) -> str | None:
        return "Enough for today." if self.used >= 300 else None

    async def count(self, usage: TokenUsage) -> str | None:
        self.used += usage.total_tokens
        return None

    def count_later(self, usage: TokenUsage) -> None:
        self.used += usage.total_tokens


async def test_a_budget_holds_without_counts() -> None:
    """The second message at the latest meets it."""
    day: Any = Day()
    async with provider(lambda body: (200, INPUT["stream"])) as served:
        answers = [(await turn(served.settings(), allowance=day)).content for _ in range(4)]
    assert answers[0].startswith("a long answer")
    assert answers[2:] == ["Enough for today."] * 2


async def test_the_same_through_litellm(via: str) -> None:
    """Its client estimates as the direct one does."""
    before = estimated("output")
    assert (await hear(say("hello world"), client=via)).text == "hello world"
    assert estimated("output") > before
