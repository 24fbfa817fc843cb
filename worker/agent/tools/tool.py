"""Tools, and the box that calls them so that no fault of a tool can end a turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import LeaseLost, ToolFailed, TurnEnded
from worker.agent.model.model import ToolCallRequest, ToolSpec
from worker.agent.ports import NULL_PORTS, ChatSchedules, Effects, Files, Outside
from worker.agent.ports import FileEntry as FileEntry  # tools, also those of packages, import these
from worker.agent.ports import Safety as Safety  # two types from here
from worker.agent.tools.schema import Parameters, convert_arguments, names_of, schema_of

Outcome = Literal["ok", "failed", "refused", "unknown_tool", "bad_arguments", "timeout", "error", "outcome_unknown"]

Report = Callable[[str, BaseException], None]  # called with the place of a fault, and the fault
RESULT_LIMIT_BYTES: Final = 10 * 1024
KEEP_LIMIT_S: Final = 10.0  # for storing a long result whole; then only its beginning is kept
SMALLER: Final = "ask for a smaller part"
_FENCE_END: Final = re.compile(r"\n\[end [0-9a-f]{12}\]\Z")


class ToolResult(msgspec.Struct, frozen=True):
    """A tool's result. `images` are paths of files that the model is shown after the text."""

    text: str
    images: tuple[str, ...] = ()


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that a call belongs to, and what its tool may use. `timezone` is an IANA name."""

    session: str
    turn: int
    call_id: str
    channel: str = ""
    chat_id: str = ""
    clock: Clock = SYSTEM_CLOCK
    timezone: str = "UTC"
    files: Files = NULL_PORTS
    effects: Effects = NULL_PORTS
    schedules: ChatSchedules = NULL_PORTS
    outside: Outside = NULL_PORTS


class Tool(Protocol):
    """One thing an agent can do. `parameters` is a Struct whose fields carry their descriptions, or
    JsonParameters. `run` gets an instance of that Struct, or a dict, and returns text for the
    model, or a ToolResult with pictures. It raises ToolFailed for a failure to tell the model."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Parameters: ...
    @property
    def safety(self) -> Safety: ...
    @property
    def timeout_s(self) -> float: ...

    async def run(self, arguments: Any, context: ToolContext) -> str | ToolResult: ...


class ToolOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call: the text for the model, and the paths of pictures that it sees."""

    content: str
    outcome: Outcome = "ok"
    images: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


def ignore_report(_where: str, _exc: BaseException) -> None:
    """Ignore a fault."""


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
            text = f"there is no tool named {request.name!r}. Tools: {known}"
            return self._error("unknown_tool", f"{text}. Use one of them, or answer without a tool.")
        wrong = f"the arguments of {tool.name!r}"
        if request.arguments is None:
            wrong = f"{wrong} are not one complete JSON object: {shorten(request.raw, 80)!r}"
            return self._error("bad_arguments", f"{wrong}. Write them again, whole.")
        try:
            arguments = convert_arguments(request.arguments, tool.parameters)
        except (msgspec.ValidationError, RecursionError) as exc:
            fields = ", ".join(names_of(tool.parameters)) or "none"
            wrong = f"{wrong} do not fit: {exc}. Its parameters: {fields}"
            return self._error("bad_arguments", f"{wrong}. Correct them and call it again.")
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
                why = f"{tool.name!r} was stopped after {tool.timeout_s:g} s"
                return self._error("timeout", f"{why}. Ask for less, or go on without it.")
            self._report(f"tool {tool.name}", exc)
            why = f"{tool.name!r} broke with {type(exc).__name__}"
            return self._error("error", f"{why}. Try other arguments, or go on without it.")
        return ToolOutcome(await self._fit_result(valid_text(result.text), context), images=images)

    async def _fit_result(self, text: str, context: ToolContext) -> str:
        """Return the text, or the beginning of a long one with the path of the whole."""
        if len(text.encode()) <= self._result_limit_bytes:
            return text
        call_id = re.sub(r"[^A-Za-z0-9_-]", "_", context.call_id)[:64]
        path, rest = f"results/{context.turn}-{call_id}.txt", SMALLER
        try:
            async with asyncio.timeout(KEEP_LIMIT_S):
                await context.files.replace(path, text, was=None)
            rest = f"the whole is in the file {path!r}"
        except (LeaseLost, TurnEnded):
            raise
        except Exception as exc:
            if not isinstance(exc, ToolFailed):
                self._report(f"keeping {path}", exc)
        return cut(text, self._result_limit_bytes, rest=rest)

    def _error(self, outcome: Outcome, text: str) -> ToolOutcome:
        return ToolOutcome(cut(f"Error: {valid_text(text)}", self._result_limit_bytes), outcome)


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, and not only awaited a cancelled one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def valid_text(text: str) -> str:
    """Return the text with lone surrogates, which no codec can write, replaced by `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def is_json_object(text: str) -> bool:
    """Return whether a text is one complete JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def shorten(text: str, chars: int) -> str:
    """Return at most `chars` characters; a shortened text ends in an ellipsis."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def cut(text: str, limit_bytes: int, *, rest: str = SMALLER) -> str:
    """Return at most `limit_bytes` of UTF-8, and a note that says how much was left out, and
    `rest`. A fence around untrusted text stays closed: it must not run into text after it."""
    data = text.encode("utf-8")
    if len(data) <= limit_bytes:
        return text
    closed = _FENCE_END.search(text)
    end = closed.group() if closed and len(closed.group()) < limit_bytes else ""
    kept = data[: limit_bytes - len(end)].decode("utf-8", "ignore")
    missing = f"{len(data) - limit_bytes:,} of {len(data):,} bytes are left out"
    return f"{kept}{end}\n\n[cut: {missing}; {rest}]"
