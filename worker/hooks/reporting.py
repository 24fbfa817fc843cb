"""Rounds and tools in the log, the metrics and the lists of subagents; never message text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from shared.errors import LeaseLost, RedisAway, Refused
from shared.metrics import MODEL_COST_USD, MODEL_REQUESTS, MODEL_SECONDS, MODEL_TOKENS, TOOL_CALLS, TOOL_SECONDS
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import Claim
from worker.agent.hook import AgentHook, Iteration, IterationDone
from worker.agent.model.model import ToolCallRequest

Log = Callable[..., None]  # an event's name and fields, like `logger.info` of structlog
UNKNOWN_TOOL: Final = "unknown"  # label of all tools that do not exist: it must have few values


class LoggingHook(AgentHook):
    """Logs `round begins`, `tools begin` and `round done` of every turn."""

    changes_messages = False

    def __init__(self, log: Log) -> None:
        self._log = log

    async def before_iteration(self, context: Iteration) -> None:
        self._log("round begins", round=context.round, messages=len(context.messages))

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> dict[str, str]:
        self._log("tools begin", tools=[call.name for call in calls])
        return {}

    async def after_iteration(self, result: IterationDone) -> None:
        self._log(
            "round done",
            round=result.round,
            model=result.model,
            finish=result.finish_reason,
            seconds=round(result.seconds, 3),
            prompt_tokens=result.usage.prompt_tokens,
            completion_tokens=result.usage.completion_tokens,
            tools_ok=[entry.name for entry in result.results if entry.ok],
            tools_failed=[entry.name for entry in result.results if not entry.ok],
        )


class MetricsHook(AgentHook):
    """Adds the usage of each round to the metrics: only the calls that this process made."""

    async def after_iteration(self, result: IterationDone) -> None:
        if not result.resumed:
            MODEL_REQUESTS.labels(result.model, "ok").inc()
            MODEL_SECONDS.labels(result.model).observe(result.seconds)
        for entry in result.results:
            run = result.runs.get(entry.call_id)
            if run is not None:
                tool = UNKNOWN_TOOL if run.outcome == "unknown_tool" else _label(entry.name)
                TOOL_CALLS.labels(tool, run.outcome).inc()
                TOOL_SECONDS.labels(tool).observe(run.seconds)
        MODEL_TOKENS.labels(result.model, "input").inc(result.usage.prompt_tokens)
        MODEL_TOKENS.labels(result.model, "output").inc(result.usage.completion_tokens)
        if result.usage.cost_usd > 0:  # no series for a model without a price: it is not free
            MODEL_COST_USD.labels(result.model).inc(result.usage.cost_usd)


class SubagentProgress(AgentHook):
    """Records rounds and tokens after each round. Losing a record costs only a number in a list."""

    def __init__(self, children: Subagents, claim: Claim) -> None:
        self._children = children
        self._claim = claim

    async def after_iteration(self, done: IterationDone) -> None:
        tokens = done.usage.prompt_tokens + done.usage.completion_tokens
        with contextlib.suppress(LeaseLost, RedisAway, Refused):
            await self._children.save_progress(self._claim, rounds=done.round, tokens=tokens)


def _label(tool: str) -> str:
    """Return the label of a tool: `mcp_<server>` for those of a server, which can have hundreds."""
    return "_".join(tool.split("_", 2)[:2]) if tool.startswith("mcp_") else tool
