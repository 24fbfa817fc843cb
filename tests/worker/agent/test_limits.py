"""The size of a prompt is known before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from worker.agent.limits import IMAGE_TOKENS, Budget, Meter, estimate_tokens
from worker.agent.model.model import Image, LLMResponse, TokenUsage, ToolCallRequest, ToolSpec, image_part


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
        (Budget(context_tokens=100_000, compact_at=0.5), 50_000, False),
        (Budget(context_tokens=100_000, compact_at=0.5), 50_001, True),
        (Budget(context_tokens=4_096, max_output_tokens=4_096), 512, False),
        (Budget(context_tokens=4_096, max_output_tokens=4_096), 513, True),
    ],
)
def test_a_prompt_is_too_big_at_80_percent_or_without_room_for_the_reply(
    budget: Budget, tokens: int, over: bool
) -> None:
    """The nearer of the two limits counts, though a reply never takes all; an unknown context is not checked."""
    assert (budget.context_tokens > 0 and tokens > budget.prompt_tokens) is over


def test_an_image_costs_the_same_whatever_its_bytes() -> None:
    """Base64 is no text: a picture of a megabyte would look like 350,000 tokens."""
    small, large = (
        [{"role": "user", "content": [image_part(Image("image/png", b"x" * size)), {"type": "text", "text": "hi"}]}]
        for size in (10, 1_000_000)
    )
    assert estimate_tokens(small) == estimate_tokens(large)
    assert IMAGE_TOKENS < estimate_tokens(large) < IMAGE_TOKENS + 20


def test_an_estimate_counts_bytes_where_a_character_has_several() -> None:
    """In many scripts a token is about one character, not four."""
    assert estimate_tokens([{"content": "字" * 400}]) > estimate_tokens([{"content": "x" * 400}]) + 150
    assert estimate_tokens([{"content": "\ud800"}]) > 0


class Purse:
    """An allowance with a sentence for each call."""

    def __init__(self, *sentences: str | None) -> None:
        self.sentences = list(sentences)
        self.charged: list[TokenUsage] = []

    async def refusal(self) -> str | None:
        return None

    async def count(self, usage: TokenUsage) -> str | None:
        self.charged.append(usage)
        return self.sentences.pop(0)

    def count_later(self, usage: TokenUsage) -> None:
        self.charged.append(usage)


async def test_a_meter_adds_up_and_keeps_the_last_warning() -> None:
    """All that was used, what was used since the last look, and what the allowance said."""
    purse = Purse(None, "80 %", None)
    meter = Meter(purse)
    first, second = TokenUsage(10, 1, 5, 0.5), TokenUsage(20, 2, 0, 0.25)
    await meter.add(first)
    assert (meter.pop_usage(), meter.warning) == (first, None)
    await meter.add(second)
    await meter.add(first)
    assert (meter.pop_usage(), meter.pop_usage()) == (TokenUsage(30, 3, 5, 0.75), TokenUsage())
    assert (meter.used, meter.warning) == (TokenUsage(40, 4, 10, 1.25), "80 %")
    assert purse.charged == [first, second, first]


def test_a_hook_reads_the_sum_of_tokens_and_if_there_are_calls() -> None:
    """By the names under which hooks of other agents know them."""
    assert TokenUsage(100, 20, cached_tokens=50).total_tokens == 120
    assert not LLMResponse(content="hi").has_tool_calls
    assert LLMResponse(content=None, tool_calls=(ToolCallRequest("1", "look", {}, "{}"),)).has_tool_calls
