"""The journal of leased work: its ledger in the store, each write guarded by the lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.crash_points import crash_point
from shared.errors import BadInput, RedisAway, TurnParked, TurnReleased
from shared.log import logger
from shared.messages.effects import Effect, SayEffect
from shared.messages.outbound import OutboundMessage, ReplyPart, TokensUsed, WaitingCalls
from shared.messages.sources import Sources
from shared.messages.transcript import (
    TRANSCRIBED,
    ApprovalEntry,
    AssistantEntry,
    CallsEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    LedgerEntry,
    ToolEntry,
)
from shared.metrics import APPROVALS, CLIENT_CALLS, MESSAGES_JOINED
from shared.store.subagents.subagents import Subagents
from shared.store.turns.approvals import question_line
from shared.store.turns.turn_writes import Turns
from shared.tracing import current_traceparent
from worker.agent.model.model import TokenUsage
from worker.agent.ports import FollowupMessage
from worker.agent.turn import AgentResult
from worker.guards.marks import TurnMark
from worker.lease.lease import STORE_PATIENCE_S, Lease
from worker.turn.conversation import JoinedMessage, read_joined

log = logger("turns")

_KINDS: Final = {
    AssistantEntry: "reply",
    IntentEntry: "intent",
    ToolEntry: "result",
    EffectEntry: "effect",
}


class LeaseJournal:
    """The agent's Journal for one lease. `entries`, the ledger of all attempts, grows here. `mark`
    is that of the turn or subagent, whose chat or task is marked with `sources`."""

    def __init__(
        self, lease: Lease, ledgers: Turns | Subagents, entries: Sequence[LedgerEntry], *, sources: Sources = ()
    ) -> None:
        self.entries = list(entries)
        self.mark: Final = TurnMark(sources)
        self.lease: Final = lease
        self.confirm: Final = lease.confirm
        self.before_result: Callable[[], Awaitable[None]] | None = None
        """Called before the result of a tool is written: what it did to files must be kept
        first."""
        self._ledgers = ledgers
        self._writing = asyncio.Lock()
        self._unconfirmed: tuple[LedgerEntry, Effect | None] | None = None

    async def checkpoint(self) -> None:
        """Wait while the lease is suspended. Raises what ends the work here, such as a drain."""
        await self.lease.allow()
        if self.lease.draining:
            raise TurnReleased("drain")

    async def secure(self) -> None:
        """Wait until the steps so far survive a fail-over."""
        await self.lease.secure(len(self.entries))

    async def append(self, entry: LedgerEntry, effect: Effect | None = None) -> None:
        """Write the next step together with its effect."""
        await self.lease.allow()
        if self.before_result is not None and isinstance(entry, ToolEntry):
            await self.before_result()
        async with self._writing:
            if self._unconfirmed is not None:
                with contextlib.suppress(BadInput):  # it was refused, and always would be
                    await self._write(*self._unconfirmed)
                self._unconfirmed = None
            try:
                await self._write(entry, effect)
            except asyncio.CancelledError:
                # A tool ran out of time, and the step may have been written or not. It is sent
                # again before the next one; the store ignores a step that it has.
                self._unconfirmed = entry, effect
                raise

    async def _write(self, entry: LedgerEntry, effect: Effect | None) -> None:
        kind = _KINDS[type(entry)]
        claim = self.lease.claim
        step = len(self.entries) + 1
        crash_point(f"before_ledger_{kind}")
        patience_s = STORE_PATIENCE_S
        await self._ledgers.append_step(claim, step, entry, effect, retry_for_s=patience_s)
        crash_point(f"after_ledger_{kind}")
        self.entries.append(entry)

    async def park(self, question: ApprovalEntry, *, wait_s: float) -> None:
        """Fail: only a turn can wait for a person."""
        raise AssertionError(f"{question.tool!r} needs a yes, and nobody can be asked here")

    async def park_calls(self, calls: CallsEntry, *, wait_s: float, usage: TokenUsage) -> None:
        """Fail: only a turn has a program that offers functions."""
        raise AssertionError("functions of a program are called, and there is none here")


class TurnJournal(LeaseJournal):
    """The journal of a turn. `joined` are the messages that joined it; it grows here as well."""

    def __init__(
        self,
        lease: Lease,
        turns: Turns,
        entries: Sequence[LedgerEntry],
        joined: dict[int, JoinedMessage] | None = None,
        message_id: str = "",
    ) -> None:
        assert lease.claim.turn is not None
        super().__init__(lease, turns, entries, sources=lease.claim.turn.sources)
        self.joined = {} if joined is None else joined
        self._turns = turns
        self._message_id = message_id
        self._work = lease.claim.turn
        self.open: Final = self._work.steers
        """True when messages that arrive during the turn may join it."""

    def reply_sent(self) -> bool:
        """Return whether the message tool has sent to the turn's own chat since the last join."""
        # Called at each delta, and most turns have no entries.
        return bool(self.entries) and self._replies_and_sent()[1]

    def pending_reply(self, result: AgentResult) -> str:
        """Return the final text, without parts that the tool replaced if the turn is finished."""
        before, spoken = self._replies_and_sent()
        return "\n\n".join(before) if spoken and result.outcome in ("done", "empty") else result.content

    def _replies_and_sent(self) -> tuple[list[str], bool]:
        """Return the answers after which messages joined, where the message tool had not replaced
        them; and whether the tool has sent something since the last join."""
        own = self.lease.claim.session
        before = []
        answer = ""
        spoken = False
        for entry in self.entries:
            match entry:
                case JoinEntry():
                    before += [answer] if answer and not spoken else []
                    answer = ""
                    spoken = False
                case AssistantEntry(tool_calls=calls, content=content):
                    answer = "" if calls else content or ""
                case EffectEntry(kind=kind, to=to) if (kind, to) == (SayEffect.kind, own):
                    spoken = True
        return before, spoken

    def parts(self) -> tuple[ReplyPart, ...]:
        """Return the texts of the turn before its last one, in order; none if there is no remark.
        What came before it last waited for its program, that program has."""
        found = self._texts()
        return tuple(found) if any(part.kind == "remark" for part in found) else ()

    def _texts(self) -> list[ReplyPart]:
        own = self.lease.claim.session
        found = list[ReplyPart]()
        for entry in self.entries:
            match entry:
                case CallsEntry():
                    found.clear()
                case AssistantEntry(tool_calls=calls, content=str(content)) if content:
                    found.append(ReplyPart("remark" if calls else "answer", content))
                case EffectEntry(kind=SayEffect.kind, to=to) if to == own:
                    found.append(ReplyPart("sent"))
        return found

    async def park(self, question: ApprovalEntry, *, wait_s: float) -> None:
        """Ask, or keep waiting; give the lease up until an answer or `wait_s` (see `Journal`)."""
        known, waits = await self._park(question, question_line(question, wait_s=wait_s), "park", wait_s=wait_s)
        tool = question.tool
        id = question.id
        digest = question.digest
        if not waits:
            APPROVALS.labels("expired").inc()
            log.info("approval expired", tool=tool, question=id, digest=digest)
            return
        if not known:
            APPROVALS.labels("asked").inc()
            log.info("approval asked", tool=tool, question=id, digest=digest)
        raise TurnParked(f"{tool!r} waits for a yes")

    async def park_calls(self, calls: CallsEntry, *, wait_s: float, usage: TokenUsage) -> None:
        """Ask the program, or keep waiting; give the lease up until it answers or `wait_s`."""
        known, waits = await self._park(calls, self._calls_line(calls, usage), "park_calls", wait_s=wait_s)
        names = [call.name for call in calls.calls]
        count = len(calls.calls)
        if not waits:
            CLIENT_CALLS.labels("expired").inc(count)
            log.info("client calls expired", functions=names)
            return
        if not known:
            CLIENT_CALLS.labels("asked").inc(count)
            log.info("client calls asked", functions=names)
        raise TurnParked("functions of its program are called")

    async def _park(
        self, entry: ApprovalEntry | CallsEntry, line: OutboundMessage, point: str, *, wait_s: float
    ) -> tuple[bool, bool]:
        """Return whether an earlier attempt asked this already, and whether the turn waits."""
        await self.lease.allow()
        async with self._writing:
            crash_point(f"before_{point}")
            step = next((at for at, found in enumerate(self.entries, 1) if _asks(found, entry)), None)
            waits = await self._turns.park(
                self.lease.claim,
                self.lease.queue.name,
                step or len(self.entries) + 1,
                entry,
                line,
                wait_s=wait_s,
                retry_for_s=STORE_PATIENCE_S,
            )
            crash_point(f"after_{point}")
        return step is not None, waits

    def _calls_line(self, calls: CallsEntry, usage: TokenUsage) -> OutboundMessage:
        """Build the line that ends the request whose program is asked; park.lua adds its times."""
        names = ", ".join(f"`{call.name}`" for call in calls.calls)
        joined = [one.message.id for one in self.joined.values() if one.message is not None]
        used = TokensUsed(prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=usage.cached_tokens)
        return OutboundMessage(
            content=f"Its program is to run {names}.",
            turn=calls.turn,
            in_reply_to=(self._message_id, *joined),
            kind="notice",
            # Lua would write an empty map as a list; a successor of the one that asked has no count.
            usage=used if used != TokensUsed() else None,
            parts=tuple(self._texts()),
            calls=WaitingCalls(calls=calls.calls),
            traceparent=current_traceparent(),
        )

    async def superseded(self) -> bool:
        """Return whether a newer message replaces the turn. False while Redis is unavailable."""
        with contextlib.suppress(RedisAway):
            return await self._turns.superseded(self.lease.claim)
        return False

    async def claim(self) -> Sequence[FollowupMessage]:
        """The messages that join the turn now (see `Followups`)."""
        # Recordings of its own message are written down before a turn begins.
        at_start = not any(map(_is_of_agent, self.entries))
        claim = self.lease.claim
        if not (self.open or (at_start and self._work.joins_at_start)):
            return ()
        await self.lease.allow()
        async with self._writing:
            crash_point("before_take")
            step = len(self.entries) + 1
            patience_s = STORE_PATIENCE_S
            accepted = await self._turns.join_waiting(claim, step, at_start=at_start, retry_for_s=patience_s)
            crash_point("after_take")
            if accepted is None:
                return ()
            self.entries.append(accepted.entry)
            records = accepted.records
            new = {number: read_joined(claim, number, record) for number, record in records}
            self.joined.update(new)
            MESSAGES_JOINED.inc(len(new))
            return [joined.followup for joined in new.values()]


def _asks(found: LedgerEntry, entry: ApprovalEntry | CallsEntry) -> bool:
    return isinstance(found, type(entry)) and found.id == entry.id


def _is_of_agent(entry: LedgerEntry) -> bool:
    return not (isinstance(entry, EffectEntry) and entry.kind == TRANSCRIBED)
