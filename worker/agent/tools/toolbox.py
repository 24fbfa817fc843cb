"""The box that calls tools so that no fault of a tool can end a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from shared.errors import LeaseLost, ToolFailed, TurnEnded
from worker.agent.composite_hook import is_cancelled
from worker.agent.model.model import ToolCallRequest, ToolSpec
from worker.agent.ports import Safety
from worker.agent.tools.schema import convert_arguments, names_of, schema_of
from worker.agent.tools.text import cut, describe_exception, fit_result, shorten, valid_text
from worker.agent.tools.tool import (
    Outcome,
    Report,
    Tool,
    ToolContext,
    ToolOutcome,
    ToolResult,
    ignore_report,
)

RESULT_LIMIT_BYTES: Final = 10 * 1024


class Toolbox:
    """The tools of one agent, in a fixed order. A result over `result_limit_bytes` is cut for the
    model; the whole is stored in the turn's files, if they accept it. Raises ValueError for two
    tools with one name, so that no tool can replace a built-in one."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        result_limit_bytes: int = RESULT_LIMIT_BYTES,
        report: Report = ignore_report,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        specs: list[ToolSpec] = []
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool
            specs.append(ToolSpec(tool.name, tool.description, schema_of(tool.parameters)))
        self._specs = tuple(specs)
        self._result_limit_bytes = result_limit_bytes
        self._report = report

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as a model is offered them; the same bytes, for a provider's cache."""
        return self._specs

    def safety(self, name: str) -> Safety | None:
        """Return the safety of a tool; None for an unknown name."""
        tool = self._tools.get(name)
        return None if tool is None else tool.safety

    def can_run_concurrently(self, name: str) -> bool:
        """Return whether a call may run beside others: it only reads, or is `concurrent`."""
        tool = self._tools.get(name)
        concurrent = getattr(tool, "concurrent", False) is True
        return tool is not None and (concurrent or tool.safety == "read_only")

    async def call(self, request: ToolCallRequest, context: ToolContext) -> ToolOutcome:
        """Call one tool. Every failure becomes a text for the model. Raises only what ends the
        whole turn: cancellation, LeaseLost and TurnEnded."""
        tool = self._tools.get(request.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return self._error(
                "unknown_tool",
                f"there is no tool named {request.name!r}. Tools: {known}. Use one of them, or answer without a tool.",
            )
        wrong = f"the arguments of {tool.name!r}"
        if request.arguments is None:
            return self._error(
                "bad_arguments",
                f"{wrong} are not one complete JSON object: {shorten(request.raw, 80)!r}. Write them again, whole.",
            )
        try:
            arguments = convert_arguments(request.arguments, tool.parameters)
        except (msgspec.ValidationError, RecursionError) as exc:
            fields = ", ".join(names_of(tool.parameters)) or "none"
            return self._error(
                "bad_arguments", f"{wrong} do not fit: {exc}. Its parameters: {fields}. Correct them and call it again."
            )
        return await self._run(tool, arguments, context)

    async def _run(self, tool: Tool, arguments: Any, context: ToolContext) -> ToolOutcome:
        try:
            async with asyncio.timeout(tool.timeout_s) as limit:
                returned = await tool.run(arguments, context)
            result = returned if isinstance(returned, ToolResult) else ToolResult(returned)
            if not isinstance(result.text, str):
                returned = type(result.text).__name__
                raise TypeError(f"tool {tool.name!r} returned {returned}; it must return text")
            images = tuple(map(valid_text, result.images))
        except (LeaseLost, TurnEnded):
            raise
        except ToolFailed as exc:
            return self._error("failed", str(exc))
        except (asyncio.CancelledError, Exception) as exc:
            # A CancelledError or TimeoutError of the tool's own is a fault like any other.
            if isinstance(exc, asyncio.CancelledError) and is_cancelled():
                raise
            if isinstance(exc, TimeoutError) and limit.expired():
                return self._error(
                    "timeout",
                    f"{tool.name!r} was stopped after {tool.timeout_s:g} s. Ask for less, or go on without it.",
                )
            self._report(f"tool {tool.name}", exc)
            return self._error(
                "error",
                f"{tool.name!r} broke with {describe_exception(exc)}. Try other arguments, or go on without it.",
            )
        return ToolOutcome(
            await fit_result(valid_text(result.text), context, self._result_limit_bytes, self._report), images=images
        )

    def _error(self, outcome: Outcome, text: str) -> ToolOutcome:
        return ToolOutcome(cut(f"Error: {valid_text(text)}", self._result_limit_bytes), outcome)
