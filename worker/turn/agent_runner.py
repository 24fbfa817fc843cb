"""The part of an agent's run that turns and subagents share: model, limits, span, and the budget of
the chat for one day."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from shared.clock import SYSTEM_CLOCK, Clock, machine_timezone
from shared.errors import ModelError, RedisAway, Refused
from shared.log import logger
from shared.metrics import BUDGETS_REACHED, MODEL_REQUESTS
from shared.settings import BudgetSettings, Settings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits, read_routes
from shared.store.fleet.spending import Spending, Spent
from shared.tasks import close_all
from worker.agent.composite_hook import CompositeHook
from worker.agent.hook import AgentHook
from worker.agent.loop import run_agent
from worker.agent.model.compact import compact
from worker.agent.model.model import TokenUsage
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import ApprovalPolicy
from worker.hooks.reporting import LoggingHook, MetricsHook
from worker.llm.registry import Models
from worker.tools.registry import plugin_hooks
from worker.turn.journal import LeaseJournal
from worker.turn.traces import agent_span, set_agent_result

RECORD_TIMEOUT_S: Final = 5.0  # limit of a background write
_DAY_MS: Final = 86_400_000
_RESETS: Final = "The budget starts anew at 00:00 UTC."

log = logger("worker")


class AgentRunner:
    """Runs agents with the models, hooks and budgets of one process; results of the tools `trusted`
    mark no turn, and `hooks` come last. Raises SettingsError when one of them cannot be had as the
    settings want it."""

    def __init__(
        self,
        settings: Settings,
        client: RedisClient,
        *,
        trusted: Iterable[str] = (),
        hooks: Iterable[AgentHook] = (),
    ) -> None:
        agent = settings.agent
        self.settings: Final = settings
        self.timezone: Final = agent.timezone or machine_timezone() or "UTC"
        self.approval: Final = ApprovalPolicy(settings, trusted)
        self.models: Final = Models(settings.model, ProviderLimits(client))
        self._client = client
        self._spending = Spending(client)
        self._background = BackgroundSpending(self._spending)
        # LoggingHook writes at level debug only; at other levels its calls would cost for nothing.
        debug = [LoggingHook(log.debug)] if settings.log.level == "debug" else []
        every = [*debug, MetricsHook(), *plugin_hooks(settings.plugins), *hooks]
        self.hook: Final = CompositeHook(every, report=report_fault, call_limit_s=agent.hook_s)

    async def run(
        self, name: str, preset: str, spec: AgentRunSpec, tools: Toolbox, journal: LeaseJournal
    ) -> AgentResult:
        """Run the agent `name` with the model of `preset`, within the limits that the settings and
        the model set and the budget of the chat. Raises what `run_agent` raises."""
        agent = self.settings.agent
        models = self.models
        session = spec.session
        model = models.get(preset)
        limits = await models.limits_of(preset)
        facts = await models.facts_of(preset)
        budget = self.settings.budget
        late = self._background
        asked = spec.options
        spec = replace(
            spec,
            max_tokens=min(limits.max_tokens, asked.max_tokens or limits.max_tokens),
            temperature=limits.temperature if asked.temperature is None else asked.temperature,
            top_p=limits.top_p,
            seed=limits.seed,
            continuations=0 if asked.max_tokens else agent.continuations,
            context_tokens=limits.context_tokens,
            window_tokens=facts.context_tokens,
            compact_at=agent.compact_at,
            compact_keep=agent.compact_keep,
            compact=partial(compact, model, session=session),
            allowance=ChatBudget(self._spending, session, budget, late=late, price=facts.cost_usd),
        )
        try:
            with agent_span(name, session, model.name) as span:
                result = await run_agent(spec, model, tools, journal)
                set_agent_result(span, result)
                return replace(result, model=model.name)
        except ModelError as exc:
            MODEL_REQUESTS.labels(model.name, exc.kind).inc()
            raise

    async def refused_models(self) -> list[str]:
        """Return the names of the models whose provider did not accept the key the last time."""
        routes = self.models.provider_routes
        refused: set[str] = set()
        with contextlib.suppress(RedisAway, Refused):
            found = await read_routes(self._client, list(routes.values()))
            refused = {one.route for one in found if one.refused}
        return [name for name, route in routes.items() if route in refused]

    async def close(self) -> None:
        """Wait for counts that are being written, and close the models' connections."""
        await close_all(self._background.close, self.models.close)


def report_fault(where: str, error: BaseException) -> None:
    """Log a fault of a hook or a tool that the run survives."""
    log.error("fault isolated", where=where, error=type(error).__name__, exc_info=error)


class BackgroundSpending:
    """Counts usage in the background: of calls cut short, or where no budget needs the sum."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, session: str, tokens: int, usd: float) -> None:
        """Start to count, and return. What Redis does not accept in RECORD_TIMEOUT_S is lost."""
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


@dataclass(eq=False)
class ChatBudget:
    """The Allowance of one turn: counts the usage of its chat, and ends the turn when the day's
    budget is used up. Without a budget it only counts, in the background. `price` is the cost of an
    estimate in USD. While Redis is unavailable nothing is counted or refused: a turn must not end
    because of its bookkeeping."""

    spending: Spending
    session: str
    settings: BudgetSettings
    _: KW_ONLY
    late: BackgroundSpending
    price: Callable[[TokenUsage], float]
    clock: Clock = SYSTEM_CLOCK
    _totals: Spent | None = field(default=None, init=False)

    async def refusal(self) -> str | None:
        """Return why no call may be made today, or None. Reads totals if no call returned them."""
        if not (self.settings.tokens_per_day or self.settings.usd_per_day):
            return None
        if self._totals is None or self._totals.day != self.clock.now_ms() // _DAY_MS:
            self._totals = None
            with contextlib.suppress(RedisAway, Refused):
                self._totals = await self.spending.read(self.session)
        for budget, share in self._shares(self._totals).items() if self._totals else ():
            if share >= 1:
                BUDGETS_REACHED.labels(budget).inc()
                return f"This chat has used its {self._describe_limit(budget)} of today. {_RESETS}"
        return None

    async def count(self, usage: TokenUsage) -> str | None:
        """Count a call. Return a note for the person, once a day, at `warn_at` of a budget."""
        settings = self.settings
        tokens = usage.prompt_tokens + usage.completion_tokens
        if not (self.settings.tokens_per_day or self.settings.usd_per_day):
            self.late.add(self.session, tokens, usage.cost_usd)
            return None
        with contextlib.suppress(RedisAway, Refused):
            self._totals = await self.spending.add(
                self.session,
                tokens,
                usage.cost_usd,
                warn_tokens=round(settings.tokens_per_day * settings.warn_at),
                warn_usd=settings.usd_per_day * settings.warn_at,
            )
            if self._totals.warn:
                shares = self._shares(self._totals)
                budget = max(shares, key=shares.__getitem__)
                return (
                    f"This chat has used {shares[budget]:.0%} of its {self._describe_limit(budget)} of today. {_RESETS}"
                )
        return None

    def count_later(self, usage: TokenUsage) -> None:
        """Count a call that was cut short, in the background. The next call brings a due
        warning."""
        tokens = usage.prompt_tokens + usage.completion_tokens
        self.late.add(self.session, tokens, self.price(usage))

    def _shares(self, spent: Spent) -> dict[str, float]:
        tokens = self.settings.tokens_per_day
        usd = self.settings.usd_per_day
        used = {"tokens": (spent.tokens, tokens), "usd": (spent.usd, usd)}
        return {budget: part / whole for budget, (part, whole) in used.items() if whole}

    def _describe_limit(self, budget: str) -> str:
        if budget == "tokens":
            return f"{self.settings.tokens_per_day:,} tokens"
        usd = self.settings.usd_per_day
        return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:g}"
