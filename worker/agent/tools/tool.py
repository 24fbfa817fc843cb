"""Tools: what they are, what their calls may use, and what comes of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from worker.agent.ports import NULL_PORTS, ChatSchedules, Effects, Files, Outside
from worker.agent.ports import FileEntry as FileEntry  # tools, also those of packages, import these
from worker.agent.ports import Safety as Safety  # two types from here
from worker.agent.tools.schema import Parameters

Outcome = Literal["ok", "failed", "refused", "unknown_tool", "bad_arguments", "timeout", "error", "outcome_unknown"]

Report = Callable[[str, BaseException], None]  # called with the place of a fault, and the fault


class ToolResult(msgspec.Struct, frozen=True):
    """A tool's result. `images` are paths of files that the model is shown after the text."""

    text: str
    images: tuple[str, ...] = ()


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that a call belongs to, and what its tool may use. `timezone` is an IANA name. A
    tool calls `mark_read` with short labels of strangers whose text it returns, such as a host
    name."""

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
    mark_read: Callable[[Iterable[str]], None] = NULL_PORTS.mark


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
