"""The borders of a turn as a test sees them: a journal and a show in memory, and tools that record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from shared.errors import TurnParked
from shared.messages.effects import Effect
from shared.messages.transcript import (
    ApprovalEntry,
    CallsEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    LedgerEntry,
    ToolEntry,
)
from shared.store.turns.queue import Claim
from worker.agent.model.model import TokenUsage
from worker.agent.ports import FollowupMessage
from worker.agent.tools.tool import Safety, ToolContext
from worker.guards.marks import TurnMark


class EndlessLease:
    """The lease of a turn that nobody can lose."""

    claim = Claim("web:owner/a", "owner", "1", 0, False, None)

    async def until_suspended(self) -> None:
        await asyncio.Event().wait()


class MemoryJournal:
    """Keeps the ledger in `entries` and what happened in which order in `events`.

    `on(event, fault)` raises `fault` when `event` happens next: `checkpoint`, `confirm`, `assistant`, `intent:<call>`
    or `result:<call>`; `before=False` raises after it was written.
    """

    lease = EndlessLease()

    def __init__(self, events: list[str] | None = None) -> None:
        self.entries: list[LedgerEntry] = []
        self.mark = TurnMark()
        self.effects: list[Effect] = []
        self.coming: list[Sequence[FollowupMessage]] = []
        self.unanswered: set[str] = set()
        self.events = events if events is not None else []
        self._faults: dict[str, list[tuple[BaseException | None, bool]]] = {}

    def on(self, event: str, fault: BaseException, *, skip: int = 0, before: bool = True) -> None:
        self._faults.setdefault(event, []).extend([(None, True)] * skip + [(fault, before)])

    @property
    def open(self) -> bool:
        return bool(self.coming)

    async def claim(self) -> Sequence[FollowupMessage]:
        """What `coming` holds for this moment: an empty tuple at each at which nothing joins."""
        messages = self.coming.pop(0) if self.coming else ()
        if messages:
            numbers = tuple(range(101, 101 + len(messages)))
            await self._happens("taken", JoinEntry(turn=messages[0].entry.turn, messages=numbers))
        return messages

    async def checkpoint(self) -> None:
        await self._happens("checkpoint", None)

    async def park(self, question: ApprovalEntry, *, wait_s: float) -> None:
        """Parks the turn; a question that is in `unanswered` by its call was waited for long enough."""
        if question.call_id in self.unanswered:
            return
        await self._happens(f"park:{question.call_id}", None if question in self.entries else question)
        raise TurnParked(question.id)

    async def park_calls(self, calls: CallsEntry, *, wait_s: float, usage: TokenUsage) -> None:
        """Parks the turn; calls that are in `unanswered` were waited for long enough."""
        if self.unanswered.intersection(call.id for call in calls.calls):
            return
        await self._happens("park_calls", None if calls in self.entries else calls)
        raise TurnParked(calls.id)

    async def confirm(self) -> None:
        await self._happens("confirm", None)

    async def secure(self) -> None:
        await self._happens("secure", None)

    async def append(self, entry: LedgerEntry, effect: Effect | None = None) -> None:
        match entry:
            case IntentEntry():
                event = f"intent:{entry.call_id}"
            case ToolEntry():
                event = f"result:{entry.call_id}"
            case EffectEntry():
                event = f"effect:{entry.call_id}"
            case _:
                event = "assistant"
        await self._happens(event, entry, effect)

    async def _happens(self, event: str, entry: LedgerEntry | None, effect: Effect | None = None) -> None:
        await asyncio.sleep(0)
        planned = self._faults.get(event) or [(None, True)]
        fault, before = planned.pop(0)
        if fault is not None and before:
            raise fault
        self.events.append(event)
        if entry is not None:
            msgspec.msgpack.encode(entry)  # what cannot be written must fail here, as it would in a store
            self.entries.append(entry)
        if effect is not None:
            self.effects.append(effect)
        if fault is not None:
            raise fault


class RecordingProgress:
    """What people would see: `visible` now, `progresses` so far, `log` in order."""

    def __init__(self) -> None:
        self.visible = ""
        self.progresses: list[str] = []
        self.log: list[str] = []
        self.fault_at: tuple[str, BaseException] | None = None

    async def add_text(self, delta: str) -> None:
        delta.encode()
        self.visible += delta
        self.log.append(delta)
        if self.fault_at is not None and self.fault_at[0] in self.visible:
            raise self.fault_at[1]

    async def reset_text(self) -> None:
        self.visible = ""
        self.log.append("<reset>")

    async def note_broken(self, chars: int) -> None:
        self.log.append(f"<broken at {chars}>")

    async def add_activity(self, text: str) -> None:
        self.progresses.append(text)
        self.log.append(f"<progress {text}>")


class AnyArguments(msgspec.Struct, frozen=True):
    """Arguments of a recording tool."""

    text: str = ""
    number: int = 0


Behaviour = Callable[[AnyArguments, ToolContext], Awaitable[Any]]


class RecordingTool:
    """A tool of any class. Every run is noted as `run:<call>` in `events` before it does what it is told to."""

    description = "A tool for tests."
    parameters = AnyArguments

    def __init__(
        self,
        name: str,
        safety: Safety = "read_only",
        behaviour: Behaviour | None = None,
        *,
        events: list[str] | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self.safety: Safety = safety
        self.timeout_s = timeout_s
        self.events = events if events is not None else []
        self.runs: list[AnyArguments] = []
        self._behaviour = behaviour

    async def run(self, arguments: AnyArguments, context: ToolContext) -> str:
        self.runs.append(arguments)
        self.events.append(f"run:{context.call_id}")
        if self._behaviour is not None:
            return await self._behaviour(arguments, context)  # type: ignore[no-any-return]
        return f"{self.name} says {arguments.text}"
