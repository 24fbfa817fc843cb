"""Tools: what one is, and the box that calls them so that nothing they do can end a turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import LeaseLost, ToolFailed, TurnEnded
from worker.agent.effects import NO_EFFECTS, Effects
from worker.agent.model.model import ToolCallRequest, ToolSpec
from worker.agent.outside import UNFENCED, Outside
from worker.agent.pictures import Pictured
from worker.agent.schedules import NO_SCHEDULES, ChatSchedules
from worker.agent.tools.schema import Parameters, converted, names_of, schema_of

Safety = Literal["read_only", "idempotent", "unsafe"]
"""What calling a tool twice does: nothing, the same thing, or harm. Decides concurrency, resume and
approval."""

Outcome = Literal["ok", "failed", "refused", "unknown_tool", "bad_arguments", "timeout", "error", "outcome_unknown"]

Report = Callable[[str, BaseException], None]
"""Takes the place of a fault and the fault, for the log."""

RESULT_LIMIT_BYTES: Final = 10 * 1024
KEEP_LIMIT_S: Final = 10.0
"""How long keeping the whole of a long result may take; after that only its beginning is there."""
_FENCE_END: Final = re.compile(r"\n\[end [0-9a-f]{12}\]\Z")


class FileEntry(msgspec.Struct, frozen=True):
    """A file, or a folder with a `/` behind its path. `size_bytes` is None where it is not
    known."""

    path: str
    size_bytes: int | None = None


class Files(Protocol):
    """The files of a turn as its tools see them. Paths are relative, with `/`; every method raises
    ToolFailed, with a text for the model, for what is not there or not allowed, and LeaseLost when
    the turn must not write any more."""

    async def read(self, path: str) -> str:
        """The whole text of a file; raises ToolFailed for one that is no text."""
        ...

    async def content(self, path: str) -> str | bytes:
        """The text of a file, or the bytes of one that is no text."""
        ...

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        """Write a whole file. With `was`, only if its text is still that one."""
        ...

    def stamp(self) -> str:
        """Which state of files that others write, too, the model has seen by now; `""` when there
        are none."""
        ...

    def as_of(self, stamp: str) -> Files:
        """The same files for calls that a model asked for when it had seen `stamp`, perhaps on
        another worker: no whole file is written over what has changed since."""
        ...

    async def names(self) -> Sequence[str]:
        """The path of every file, sorted."""
        ...

    async def entries(self) -> Sequence[FileEntry]:
        """Every file and folder, by path."""
        ...


class NoFiles:
    """The files of an agent that has none."""

    async def read(self, path: str) -> str:
        raise ToolFailed(f"there is no file {path!r}: this agent has no files")

    async def content(self, path: str) -> str | bytes:
        return await self.read(path)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        raise ToolFailed(f"{path!r} cannot be written: this agent has no files")

    def stamp(self) -> str:
        return ""

    def as_of(self, stamp: str) -> Files:
        return self

    async def names(self) -> Sequence[str]:
        return ()

    async def entries(self) -> Sequence[FileEntry]:
        return ()


NO_FILES: Final = NoFiles()


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call comes from. `timezone` is an IANA name."""

    session: str
    turn: int
    call_id: str
    channel: str = ""
    chat_id: str = ""
    clock: Clock = SYSTEM_CLOCK
    timezone: str = "UTC"
    files: Files = NO_FILES
    effects: Effects = NO_EFFECTS
    schedules: ChatSchedules = NO_SCHEDULES
    outside: Outside = UNFENCED


class Tool(Protocol):
    """One thing an agent can do. `parameters` is a Struct whose fields carry their descriptions, or
    JsonParameters.

    `run` gets an instance of it, or a dict, and returns text for the model, with pictures of files
    if it looked at any; what that should know is a ToolFailed.
    """

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

    async def run(self, arguments: Any, context: ToolContext) -> str | Pictured: ...


class ToolOutcome(msgspec.Struct, frozen=True):
    """What came of a call. `content` is what the model reads, `images` are paths of pictures that
    it sees."""

    content: str
    outcome: Outcome = "ok"
    images: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


def ignore_report(_where: str, _exc: BaseException) -> None:
    """The Report of those who do not listen."""


class Toolbox:
    """The tools of one agent, in a fixed order.

    A result over `result_limit_bytes` is cut for the model; the whole goes to the turn's files, if
    they take it. Raises ValueError when two have the same name, so that none can stand in for a
    built-in one.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        result_limit_bytes: int = RESULT_LIMIT_BYTES,
        report: Report = ignore_report,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool
        every = self._tools.values()
        self._specs = tuple(ToolSpec(tool.name, tool.description, schema_of(tool.parameters)) for tool in every)
        self._result_limit_bytes = result_limit_bytes
        self._report = report

    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is offered; the same bytes every time, so that a provider's prompt cache
        hits."""
        return self._specs

    def safety(self, name: str) -> Safety | None:
        """The class of a tool; None when there is no such tool."""
        tool = self._tools.get(name)
        return None if tool is None else tool.safety

    def concurrent(self, name: str) -> bool:
        """Whether a call may run beside others of one reply: it changes nothing, or its tool says
        so (`concurrent`)."""
        tool = self._tools.get(name)
        return tool is not None and (tool.safety == "read_only" or getattr(tool, "concurrent", False) is True)

    async def call(self, request: ToolCallRequest, context: ToolContext) -> ToolOutcome:
        """Call one tool. Whatever goes wrong becomes a text for the model.

        Only what ends the whole turn goes up: cancellation, LeaseLost and TurnEnded.
        """
        tool = self._tools.get(request.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return self._error(
                "unknown_tool",
                f"there is no tool named {request.name!r}. Tools: {known}. Use one of them, or answer without a tool.",
            )
        if request.arguments is None:
            return self._error(
                "bad_arguments",
                f"the arguments of {tool.name!r} are not one complete JSON object: {shorten(request.raw, 80)!r}. "
                "Write them again, whole.",
            )
        try:
            arguments = converted(request.arguments, tool.parameters)
        except (msgspec.ValidationError, RecursionError) as exc:
            fields = ", ".join(names_of(tool.parameters)) or "none"
            return self._error(
                "bad_arguments",
                f"the arguments of {tool.name!r} do not fit: {exc}. Its parameters: {fields}. "
                "Correct them and call it again.",
            )
        return await self._run(tool, arguments, context)

    async def _run(self, tool: Tool, arguments: Any, context: ToolContext) -> ToolOutcome:
        try:
            async with asyncio.timeout(tool.timeout_s) as limit:
                told = await tool.run(arguments, context)
            result = told if isinstance(told, Pictured) else Pictured(told)
            if not isinstance(result.text, str):
                raise TypeError(f"tool {tool.name!r} returned {type(result.text).__name__}; it must return text")
            images = tuple(map(valid_text, result.images))
        except (LeaseLost, TurnEnded):
            raise
        except ToolFailed as exc:
            return self._error("failed", str(exc))
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._broken(tool, exc)
        except Exception as exc:
            if isinstance(exc, TimeoutError) and limit.expired():
                why = f"{tool.name!r} was stopped after {tool.timeout_s:g} s. Ask for less, or go on without it."
                return self._error("timeout", why)
            return self._broken(tool, exc)
        return ToolOutcome(await self._fitted(valid_text(result.text), context), images=images)

    async def _fitted(self, text: str, context: ToolContext) -> str:
        """The text, or the beginning of a long one and where the whole is."""
        if len(text.encode()) <= self._result_limit_bytes:
            return text
        path = f"results/{context.turn}-{re.sub(r'[^A-Za-z0-9_-]', '_', context.call_id)[:64]}.txt"
        try:
            async with asyncio.timeout(KEEP_LIMIT_S):
                await context.files.replace(path, text, was=None)
        except (LeaseLost, TurnEnded):
            raise
        except ToolFailed:
            return cut(text, self._result_limit_bytes)
        except Exception as exc:
            self._report(f"keeping {path}", exc)
            return cut(text, self._result_limit_bytes)
        return cut(text, self._result_limit_bytes, rest=f"the whole is in the file {path!r}")

    def _broken(self, tool: Tool, exc: BaseException) -> ToolOutcome:
        self._report(f"tool {tool.name}", exc)
        told = f"{tool.name!r} broke with {type(exc).__name__}. Try other arguments, or go on without it."
        return self._error("error", told)

    def _error(self, outcome: Outcome, text: str) -> ToolOutcome:
        return ToolOutcome(cut(f"Error: {valid_text(text)}", self._result_limit_bytes), outcome)


def valid_text(text: str) -> str:
    """The same text with half characters (lone surrogates, which no codec can write) replaced by
    `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shorten(text: str, chars: int) -> str:
    """At most `chars` characters; what is cut ends in an ellipsis."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def cut(text: str, limit_bytes: int, *, rest: str = "ask for a smaller part") -> str:
    """At most `limit_bytes` of UTF-8, followed by a note that says how much was left out, and
    `rest`. A fence around the text stays closed: what its author wrote must not run into what comes
    behind it."""
    data = text.encode("utf-8")
    if len(data) <= limit_bytes:
        return text
    closed = _FENCE_END.search(text)
    end = closed.group() if closed and len(closed.group()) < limit_bytes else ""
    kept = data[: limit_bytes - len(end)].decode("utf-8", "ignore")
    return f"{kept}{end}\n\n[cut: {len(data) - limit_bytes:,} of {len(data):,} bytes are left out; {rest}]"
