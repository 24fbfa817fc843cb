"""The budget of one chat for one day."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused
from shared.metrics import BUDGETS_REACHED
from shared.settings import BudgetSettings
from shared.store.fleet.spending import Spending, Spent
from worker.agent.model.model import TokenUsage

RECORD_TIMEOUT_S: Final = 5.0  # limit of a background write
_DAY_MS: Final = 86_400_000
_RESETS: Final = "The budget starts anew at 00:00 UTC."


class BackgroundSpending:
    """Counts usage in the background: of calls that were cut short, and of all calls where no
    budget needs the sum."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, session: str, tokens: int, usd: float) -> None:
        """Start to count, and return. Usage that Redis does not accept within RECORD_TIMEOUT_S is
        not counted."""
        task = asyncio.create_task(self._count(session, tokens, usd))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Return when every count is written or given up."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _count(self, session: str, tokens: int, usd: float) -> None:
        with contextlib.suppress(RedisAway, Refused, TimeoutError):
            async with asyncio.timeout(RECORD_TIMEOUT_S):
                await self._spending.add(session, tokens, usd)


class ChatBudget:
    """The Allowance of one turn: counts the usage of its chat, and ends the turn when the day's
    budget is used up.

    Without a budget it only counts, in the background. `price` is the cost of an estimate in USD.
    While Redis is unavailable nothing is counted or refused: a turn must not end because of its
    bookkeeping.
    """

    def __init__(
        self,
        spending: Spending,
        session: str,
        settings: BudgetSettings,
        *,
        late: BackgroundSpending,
        price: Callable[[TokenUsage], float],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._spending = spending
        self._late = late
        self._price = price
        self._session = session
        self._settings = settings
        self._limited = bool(settings.tokens_per_day or settings.usd_per_day)
        self._clock = clock
        self._totals: Spent | None = None

    async def refusal(self) -> str | None:
        """Return the reason why no further call may be made today, or None. Reads the totals unless
        a call of today has returned them."""
        if not self._limited:
            return None
        if self._totals is None or self._totals.day != self._clock.now_ms() // _DAY_MS:
            self._totals = None
            with contextlib.suppress(RedisAway, Refused):
                self._totals = await self._spending.read(self._session)
        for budget, share in self._shares(self._totals).items() if self._totals else ():
            if share >= 1:
                BUDGETS_REACHED.labels(budget).inc()
                return f"This chat has used its {self._describe_limit(budget)} of today. {_RESETS}"
        return None

    async def count(self, usage: TokenUsage) -> str | None:
        """Count a call. Return a sentence for the person, once a day, when `warn_at` of a budget is
        used."""
        settings, tokens = self._settings, usage.prompt_tokens + usage.completion_tokens
        if not self._limited:
            self._late.add(self._session, tokens, usage.cost_usd)
            return None
        with contextlib.suppress(RedisAway, Refused):
            self._totals = await self._spending.add(
                self._session,
                tokens,
                usage.cost_usd,
                warn_tokens=round(settings.tokens_per_day * settings.warn_at),
                warn_usd=settings.usd_per_day * settings.warn_at,
            )
            if self._totals.warn:
                shares = self._shares(self._totals)
                budget = max(shares, key=shares.__getitem__)
                used = f"{shares[budget]:.0%} of its {self._describe_limit(budget)} of today"
                return f"This chat has used {used}. {_RESETS}"
        return None

    def count_later(self, usage: TokenUsage) -> None:
        """Count a call that was cut short, in the background. The next call returns the warning, if
        any is due."""
        tokens = usage.prompt_tokens + usage.completion_tokens
        self._late.add(self._session, tokens, self._price(usage))

    def _shares(self, spent: Spent) -> dict[str, float]:
        """Return the used share of each budget that is set."""
        tokens, usd = self._settings.tokens_per_day, self._settings.usd_per_day
        used = {"tokens": (spent.tokens, tokens), "usd": (spent.usd, usd)}
        return {budget: part / whole for budget, (part, whole) in used.items() if whole}

    def _describe_limit(self, budget: str) -> str:
        if budget == "tokens":
            return f"{self._settings.tokens_per_day:,} tokens"
        usd = self._settings.usd_per_day
        return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:g}"
