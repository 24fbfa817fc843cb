"""What one chat may use in one day."""

from __future__ import annotations

import asyncio

import pytest

from shared.clock import SYSTEM_CLOCK
from shared.metrics import REGISTRY
from shared.settings import BudgetSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from tests.helpers.clock import HandClock
from worker.agent.model.model import TokenUsage
from worker.agent.ports import Allowance
from worker.turn.agent_runner import RECORD_TIMEOUT_S, BackgroundSpending, ChatBudget

CHAT = "web:owner/a"
NOWHERE = "redis://127.0.0.1:1"


def dollar_a_token(usage: TokenUsage) -> float:
    return float(usage.prompt_tokens + usage.completion_tokens)


def budget(
    client: RedisClient, *, late: BackgroundSpending | None = None, clock: HandClock | None = None, **settings: float
) -> ChatBudget:
    made = BudgetSettings(**settings)  # type: ignore[arg-type]
    spending = Spending(client)
    late = late or BackgroundSpending(spending)
    return ChatBudget(spending, CHAT, made, late=late, price=dollar_a_token, clock=clock or SYSTEM_CLOCK)


def reached(kind: str) -> float:
    return REGISTRY.get_sample_value("shoal_budgets_reached_total", {"budget": kind}) or 0.0


async def test_a_chat_that_used_its_tokens_is_refused_before_the_next_call(client: RedisClient) -> None:
    """With the number, and when it begins anew; also in its next turn, on another worker."""
    allowance: Allowance = budget(client, tokens_per_day=200_000)
    assert await allowance.refusal() is None
    await allowance.count(TokenUsage(150_000, 49_999))
    assert await allowance.refusal() is None
    await allowance.count(TokenUsage(1, 0))
    says = "This chat has used its 200,000 tokens of today. The budget starts anew at 00:00 UTC."
    before = reached("tokens")
    assert await allowance.refusal() == says
    assert await budget(client, tokens_per_day=200_000).refusal() == says
    assert reached("tokens") == before + 2


@pytest.mark.parametrize(("usd", "words"), [(5.0, "$5.00"), (1234.5, "$1,234.50"), (0.004, "$0.004")])
async def test_a_chat_that_used_its_money_is_refused(client: RedisClient, usd: float, words: str) -> None:
    """Whatever a budget is counted in."""
    allowance = budget(client, usd_per_day=usd, tokens_per_day=10)
    await allowance.count(TokenUsage(1, 1, cost_usd=usd))
    before = reached("usd")
    assert await allowance.refusal() == f"This chat has used its {words} of today. The budget starts anew at 00:00 UTC."
    assert reached("usd") == before + 1


async def test_a_chat_is_warned_once_a_day(client: RedisClient) -> None:
    """When a call reaches `warn_at`, whichever worker made it, and with the numbers."""
    allowance = budget(client, tokens_per_day=1000, warn_at=0.5)
    assert await allowance.count(TokenUsage(499, 0)) is None
    warning = await allowance.count(TokenUsage(101, 50))
    assert warning == "This chat has used 65% of its 1,000 tokens of today. The budget starts anew at 00:00 UTC."
    assert await allowance.count(TokenUsage(1, 0)) is None
    assert await budget(client, tokens_per_day=1000, warn_at=0.5).count(TokenUsage(1, 0)) is None


async def test_the_budget_that_is_nearer_to_its_end_is_named(client: RedisClient) -> None:
    """A person hears of the one that stops them first."""
    warning = await budget(client, tokens_per_day=1000, usd_per_day=1.0).count(TokenUsage(100, 0, cost_usd=0.9))
    assert warning is not None
    assert "90% of its $1.00" in warning


async def test_without_a_budget_it_only_counts(client: RedisClient) -> None:
    """So that /status can say what a chat used, and beside the turn, which does not wait for it."""
    late = BackgroundSpending(Spending(client))
    allowance = budget(client, late=late)
    assert await allowance.count(TokenUsage(10**9, 1, cost_usd=1000.0)) is None
    assert await allowance.refusal() is None
    assert (await Spending(client).read(CHAT)).tokens == 0, "it has only begun"
    await late.close()
    spent = await Spending(client).read(CHAT)
    assert (spent.tokens, spent.usd) == (10**9 + 1, 1000.0)


async def test_a_turn_that_lasts_past_midnight_has_the_new_day(client: RedisClient) -> None:
    """What an earlier call of the turn told is of yesterday then."""
    seconds, _ = await client.command("TIME")
    clock = HandClock(float(seconds))
    allowance = budget(client, clock=clock, tokens_per_day=10)
    await allowance.count(TokenUsage(10, 0))
    assert await allowance.refusal() is not None
    today = int(seconds) // 86_400
    await client.command("RENAME", keys.spent(CHAT, today), keys.spent(CHAT, today - 1))
    clock.at += 86_400
    assert await allowance.refusal() is None


async def test_while_redis_is_away_nothing_is_refused_and_nothing_raised() -> None:
    """A turn does not end because of its bookkeeping."""
    nobody = RedisClient(NOWHERE)
    allowance = budget(nobody, tokens_per_day=1)
    assert await allowance.refusal() is None
    assert await allowance.count(TokenUsage(10, 10)) is None
    assert await allowance.refusal() is None
    await nobody.close()


async def test_a_call_that_was_broken_off_counts_after_its_turn_has_ended(client: RedisClient) -> None:
    """In tokens and in money; the one who counts does not wait, and a cancelled turn does not stop it."""
    late, begun = BackgroundSpending(Spending(client)), asyncio.Event()

    async def turn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            budget(client, late=late).count_later(TokenUsage(60, 40))

    running = asyncio.create_task(turn())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await late.close()
    spent = await Spending(client).read(CHAT)
    assert (spent.tokens, spent.usd) == (100, 100.0)
    assert await budget(client, tokens_per_day=100).refusal() is not None


async def test_a_late_count_leaves_the_warning_to_the_next_call(client: RedisClient) -> None:
    """It is given once a day, and nobody would see it in a turn that has ended."""
    late = BackgroundSpending(Spending(client))
    allowance = budget(client, late=late, tokens_per_day=100)
    allowance.count_later(TokenUsage(90, 0))
    await late.close()
    warning = await allowance.count(TokenUsage(1, 0))
    assert warning is not None
    assert "91% of its 100 tokens" in warning


async def test_while_redis_is_away_a_late_count_is_given_up() -> None:
    """A worker that leaves waits for it a few seconds at most."""
    nobody = RedisClient(NOWHERE)
    late = BackgroundSpending(Spending(nobody))
    budget(nobody, late=late).count_later(TokenUsage(1, 0))
    async with asyncio.timeout(RECORD_TIMEOUT_S + 30):
        await late.close()
    await nobody.close()
