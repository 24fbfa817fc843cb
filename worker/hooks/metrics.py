"""Metrics of model calls, tokens, cost and tools."""

from __future__ import annotations

from typing import Final

from shared.metrics import (
    MODEL_COST_USD,
    MODEL_REQUESTS,
    MODEL_SECONDS,
    MODEL_TOKENS,
    TOOL_CALLS,
    TOOL_SECONDS,
)
from worker.agent.hook import AgentHook, IterationDone

UNKNOWN_TOOL: Final = "unknown"
"""The label of all tools that do not exist: models invent their names, and a label must have few
values."""


class MetricsHook(AgentHook):
    """Adds the usage of each round to the metrics of the process: only the calls that this process
    made."""

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
        if result.usage.cost_usd > 0:  # a model without a price has no series, rather than one that says it is free
            MODEL_COST_USD.labels(result.model).inc(result.usage.cost_usd)


def _label(tool: str) -> str:
    """Return the label of a tool. All tools of one MCP server share `mcp_<server>`, because a
    server can have hundreds and change them."""
    return "_".join(tool.split("_", 2)[:2]) if tool.startswith("mcp_") else tool
