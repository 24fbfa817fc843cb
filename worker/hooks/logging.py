"""Rounds and tools in the log: names, numbers and times, never message text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.agent.hook import AgentHook, Iteration, IterationDone
from worker.agent.model.model import ToolCallRequest

Log = Callable[..., None]
"""Called with the event's name and its fields, like `logger.info` of structlog."""


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
