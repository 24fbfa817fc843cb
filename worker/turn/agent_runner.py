"""The part of an agent's run that turns and subagents share: model, limits, budget and span."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from msgspec.structs import replace

from shared.errors import ModelError
from shared.log import logger
from shared.metrics import MODEL_REQUESTS
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits
from shared.store.fleet.spending import Spending
from worker.agent.hook import CompositeHook
from worker.agent.loop import run_agent
from worker.agent.model.compact import compact
from worker.agent.tools.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import ApprovalPolicy
from worker.hooks.reporting import LoggingHook, MetricsHook
from worker.llm.registry import Models
from worker.tools.registry import plugin_hooks
from worker.turn.budget import BackgroundSpending, ChatBudget
from worker.turn.journal import LeaseJournal
from worker.turn.traces import agent_span, set_agent_result

log = logger("worker")


class AgentRunner:
    """Runs agents with the models, hooks and budgets of one process. Raises SettingsError when one
    of them cannot be had as the settings want it."""

    def __init__(self, settings: Settings, client: RedisClient) -> None:
        agent = settings.agent
        self.settings: Final = settings
        self.timezone: Final = agent.timezone or machine_timezone()
        self.approval: Final = ApprovalPolicy(settings)
        self.models: Final = Models(settings.model, ProviderLimits(client))
        self._spending = Spending(client)
        self._background = BackgroundSpending(self._spending)
        # LoggingHook writes at level debug only; at other levels its calls would cost for nothing.
        debug = [LoggingHook(log.debug)] if settings.log.level == "debug" else []
        hooks = [*debug, MetricsHook(), *plugin_hooks(settings.plugins)]
        self.hook: Final = CompositeHook(hooks, report=report_fault, call_limit_s=agent.hook_s)

    async def run(
        self, name: str, preset: str, spec: AgentRunSpec, tools: Toolbox, journal: LeaseJournal
    ) -> AgentResult:
        """Run the agent `name` with the model of `preset`, within the limits that the settings and
        the model set and the budget of the chat. Raises what `run_agent` raises."""
        agent, models, session = self.settings.agent, self.models, spec.session
        model = models.get(preset)
        limits = await models.limits_of(preset)
        price = (await models.facts_of(preset)).cost_usd
        budget, late = self.settings.budget, self._background
        spec = replace(
            spec,
            timezone=self.timezone,
            max_tokens=limits.max_tokens,
            temperature=limits.temperature,
            continuations=agent.continuations,
            context_tokens=limits.context_tokens,
            compact_at=agent.compact_at,
            compact_keep=agent.compact_keep,
            compact=partial(compact, model),
            allowance=ChatBudget(self._spending, session, budget, late=late, price=price),
        )
        try:
            with agent_span(name, session, model.name) as span:
                result = await run_agent(spec, model, tools, journal)
                set_agent_result(span, result)
                return result
        except ModelError as exc:
            MODEL_REQUESTS.labels(model.name, exc.kind).inc()
            raise

    async def close(self) -> None:
        """Wait for counts that are being written, and close the models' connections."""
        await self._background.close()
        await self.models.close()


def machine_timezone() -> str:
    """Return the machine's IANA time zone if it can be found; else UTC."""
    return os.path.realpath("/etc/localtime").partition("zoneinfo/")[2] or "UTC"


def report_fault(where: str, error: BaseException) -> None:
    """Log a fault of a hook or a tool that the run survives."""
    log.error("fault isolated", where=where, error=type(error).__name__, exc_info=error)
