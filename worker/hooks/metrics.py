"""Counts model calls, tokens and tools."""

from __future__ import annotations

from shared.metrics import MODEL_REQUESTS, MODEL_SECONDS, MODEL_TOKENS, TOOL_CALLS
from worker.agent.hook import AgentHook, IterationDone


class MetricsHook(AgentHook):
    """Adds what a round used to the metrics of the process."""

    async def after_iteration(self, result: IterationDone) -> None:
        MODEL_REQUESTS.labels(result.model, "ok").inc()
        MODEL_SECONDS.labels(result.model).observe(result.seconds)
        for entry in result.results:
            TOOL_CALLS.labels(entry.name, "ok" if entry.ok else "error").inc()
        MODEL_TOKENS.labels(result.model, "input").inc(result.usage.prompt_tokens)
        MODEL_TOKENS.labels(result.model, "output").inc(result.usage.completion_tokens)
