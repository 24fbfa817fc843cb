"""The agent's ports: everything a turn needs from outside the core, as Protocols. All of them are
in this one long file, so that the whole border of the agent can be read at once. The worker
implements them (`worker/turn`, `worker/guards`), tests implement them in memory. Their own bodies
are the answers of `NULL_PORTS`, which stands wherever a turn has nothing of the kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from shared.errors import ToolFailed
from shared.messages.effects import Effect
from shared.messages.schedule import Misfire, Plan, Schedule, ScheduleStatus
from shared.messages.transcript import ApprovalEntry, CallsEntry, LedgerEntry, UserEntry
from worker.agent.model.model import Image, TokenUsage, ToolCallRequest

Safety = Literal["read_only", "idempotent", "unsafe"]
"""The effect of a second call: none, the same, or harm. For concurrency, resume, approval."""


# --- The turn itself: its record, its chat, its budget


class Journal(Protocol):
    """The write-ahead record of a turn, and its border with the fleet."""

    async def checkpoint(self) -> None:
        """Pass a point at which the turn may end. Called before every model call and every tool
        batch; waits while the turn is suspended. Raises TurnReleased, TurnStopped or LeaseLost."""

    async def append(self, entry: LedgerEntry, effect: Effect | None = None) -> None:
        """Write one step, and carry out `effect` with it, both or neither; durable when this
        returns. Raises LeaseLost. Safe to call from several tasks."""

    async def park(self, question: ApprovalEntry, *, wait_s: float) -> None:
        """Ask a person, or wait on for the answer to a question, and give the turn up until then.
        Returns after `wait_s` without one. Raises TurnParked, LeaseLost, TurnStopped."""

    async def park_calls(self, calls: CallsEntry, *, wait_s: float, usage: TokenUsage) -> None:
        """Ask the program of the turn to run functions, or wait on for their results, and give the
        turn up until then. `usage` is that of the turn so far. Returns after `wait_s` without
        results. Raises TurnParked, LeaseLost, TurnStopped."""

    async def confirm(self) -> None:
        """Renew the lease now, before something that cannot be undone. Raises LeaseLost."""

    async def secure(self) -> None:
        """Return when the steps so far survive the loss of the store's primary, if the store is set
        up to wait for that. Raises LeaseLost, TurnReleased."""


class TurnProgress(Protocol):
    """Live output of a running turn. Not durable: losing it loses nothing. May raise TurnEnded."""

    async def add_text(self, delta: str) -> None:
        """Append text to the visible reply."""
        return

    async def reset_text(self) -> None:
        """Remove all visible text since the last reset."""
        return

    async def add_activity(self, text: str) -> None:
        """Show one line about the current step, such as `calculate("2+2")`."""
        return

    async def note_broken(self, chars: int) -> None:
        """The model's stream broke off after so many characters, and is asked for the rest."""
        return


class FollowupMessage(msgspec.Struct, frozen=True):
    """A message that joined a running turn, with its `images`. The sender is set in groups."""

    entry: UserEntry
    images: tuple[Image, ...] = ()
    sender_name: str = ""
    sender_id: str = ""


class Followups(Protocol):
    """The source of further messages for a running turn."""

    @property
    def open(self) -> bool:
        """True if messages that arrive while the turn runs may join it."""
        return False

    async def claim(self) -> Sequence[FollowupMessage]:
        """Claim the messages that join now, in order, before every model call. When this returns,
        the ledger says where they stand. Raises TurnStopped, LeaseLost."""
        return ()


class Allowance(Protocol):
    """The budget of a chat. Checked before every round, charged after every call."""

    async def refusal(self) -> str | None:
        """Return why no further call may be made, as a sentence for the person; None if one may."""
        return None

    async def count(self, usage: TokenUsage) -> str | None:
        """Charge one call. Return a sentence for the person when most of the budget is used."""
        return None

    def count_later(self, usage: TokenUsage) -> None:
        """Charge an estimate for a call that was cut short. Returns at once and raises nothing: the
        turn may be ending because it was cancelled, so the write happens in the background."""
        return


# --- Approval of tool calls


class ApprovalNeed(NamedTuple):
    """The verdict on one call: run it, ask a person first, or refuse it. `why` is for the model."""

    kind: Literal["free", "ask", "refuse"]
    why: str = ""


FREE: Final = ApprovalNeed("free")


class Consent(Protocol):
    """The approval policy of one turn."""

    @property
    def wait_s(self) -> float:
        """Seconds for which an answer counts."""
        return 0.0

    @property
    def sources(self) -> tuple[str, ...]:
        """The mark of the turn: sources of strangers' text that it has read."""
        return ()

    def brings(self, call: ToolCallRequest) -> tuple[str, ...]:
        """Return the sources of strangers' text that the result of this call may hold."""
        return ()

    def mark(self, sources: Iterable[str]) -> None:
        """Mark the turn with sources that it has read."""
        return

    async def settle(self) -> None:
        """Mark the turn with what a call has read in places that have a mark of their own. Called
        before anything that the call made or returned is stored."""
        return

    def pop_unwritten(self) -> tuple[str, ...]:
        """Return the sources that no result in the ledger has yet, and count them as written."""
        return ()

    def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
        """Return what this call needs in the current state of the turn."""
        return FREE

    async def stands(self, call: ToolCallRequest) -> bool:
        """Return whether a person of the chat approved this call, and later ones like it,
        before."""
        return False

    def question(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalEntry:
        """Make the question for a person, after `stands`; its times are added when it is asked."""
        raise AssertionError(f"approval of {call.name!r} was asked for, but this turn needs none")

    def covers(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        """Return whether this call is exactly the one in the question."""
        return False


# --- For tools


class FileEntry(msgspec.Struct, frozen=True):
    """A file, or a folder with a trailing `/` in its path. `size_bytes` is None if unknown."""

    path: str
    size_bytes: int | None = None


class Files(Protocol):
    """The files of a turn as its tools see them. Paths are relative, with `/`. Every method raises
    ToolFailed, with a text for the model, for a file that does not exist or is not allowed, and
    LeaseLost when the turn must not write any more."""

    async def read(self, path: str) -> str:
        """Return the whole text of a file. Raises ToolFailed for a file that is not text."""
        raise ToolFailed(f"there is no file {path!r}: this agent has no files")

    async def content(self, path: str) -> str | bytes:
        """Return the text of a file, or the bytes of one that is not plain UTF-8."""
        return await self.read(path)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        """Write a whole file. With `was`, only if its text is still that one."""
        raise ToolFailed(f"{path!r} cannot be written: this agent has no files")

    def stamp(self) -> str:
        """Return the version the model has seen of files that others write too; `""` for none."""
        return ""

    def as_of(self, stamp: str) -> Files:
        """Return the same files for calls that a model asked for when it had seen `stamp`, perhaps
        on another worker: a whole file is never written over a change made since."""
        return self

    async def names(self) -> Sequence[str]:
        """Return the path of every file, sorted."""
        return ()

    async def entries(self) -> Sequence[FileEntry]:
        """Return every file and folder, by path."""
        return ()


class Pictures(Protocol):
    """The source of pictures for the model."""

    async def picture(self, path: str) -> Image:
        """Load one picture. Raises ToolFailed if it is missing, no picture, or too big."""
        raise ToolFailed(f"there is no picture {path!r}: this agent has no files")


class Effects(Protocol):
    """Effects of one tool call inside Shoal, each exactly once even if the worker is lost."""

    async def carry_out(self, effect: Effect) -> bool:
        """Carry out an effect in one step with its record. Return False if an earlier attempt at
        this call has done it. A call with several effects carries them out in the same order at
        each attempt. Its tool is `idempotent`. Raises LeaseLost and ToolFailed."""
        raise ToolFailed("this agent can only answer; say what should be done instead")

    async def border(self) -> None:
        """Pass a point at which the turn may end here. A tool that only waits calls this now and
        then; it raises, for example, for a drain. A successor makes the call again."""
        return


class ChatSchedules(Protocol):
    """The schedules of one chat, for one turn. Every method raises ToolFailed, with a text for the
    model, for a schedule that is missing or not allowed, and LeaseLost when the turn must not
    write."""

    async def add(
        self, text: str, plan: Plan, *, misfire: Misfire, timezone: str, key: str, now_ms: int
    ) -> tuple[Schedule, int]:
        """Plan a text. Return the stored schedule and its next tick in ms. A second call with the
        same `key`, also from a later worker of this turn, adds nothing."""
        raise ToolFailed("nothing can be planned here")

    async def listed(self) -> Sequence[ScheduleStatus]:
        """Return all schedules, the next one first."""
        return ()

    async def remove(self, id: str) -> None:
        """Delete one schedule."""
        raise ToolFailed(f"there is no schedule {id!r} here")


class Outside(Protocol):
    """The turn's lease, for a tool that acts outside Shoal's store, such as a command on a machine.
    No guard of the store can stop such effects once the turn has moved to another worker."""

    @property
    def token(self) -> int:
        """Fencing token of the lease; monotonic per `fence`."""
        return 0

    @property
    def fence(self) -> str:
        """The scope of the lease: the turns of one session, or one subagent."""
        return ""

    @property
    def folder(self) -> str:
        """The operator's folder that the turn works on, `""` for its own workspace."""
        return ""

    async def until_doubtful(self) -> None:
        """Return when this worker may soon lose the turn: what runs outside must end now."""
        await asyncio.Event().wait()  # without a lease there is nothing to lose

    async def copies(self) -> Mapping[str, bytes]:
        """Return files of the turn that are not in its workspace, by name, for a process there.
        Called before such a process starts: it may write text that the turn has read. Raises
        ToolFailed."""
        return {}

    def mark_read(self) -> None:
        """Mark the turn with what its workspace holds, once a process has ended there."""
        return


class NullPorts(TurnProgress, Followups, Allowance, Consent, Files, Pictures, Effects, ChatSchedules, Outside):
    """Every optional port of an agent that has only its own answer: reads find nothing, writes are
    refused, the budget is unlimited, and no call needs approval."""


NULL_PORTS: Final = NullPorts()
