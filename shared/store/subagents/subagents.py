"""Subagents: the writes of a worker that runs one, the end of one, and what people can see of
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import BadRecord, LeaseLost, ToolFailed, TurnLimited
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.effects import Effect
from shared.messages.subagent import Outcome, SubagentTask, decode_task, fitted, report
from shared.messages.transcript import LedgerEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import QUEUE as JOBS
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits
from shared.store.turns.queue import Claim
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES

State = Literal["queued", "running", "ok", "failed", "timeout", "cancelled", "poison"]
ReportOutcome = Literal["reported", "kept", "dropped", "known"]
"""Outcome of a report: it is in the inbox, the turn that waits will read it, its conversation is
over, or the subagent had ended before."""

OPEN: Final = ("queued", "running")
_REPORT_OUTCOMES: Final[tuple[ReportOutcome, ...]] = ("known", "reported", "kept", "dropped")
_FIELDS: Final = ("m", "state", "spawned", "began", "ended", "rounds", "tokens", "result")


class SubagentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent for people to see; times are ms of the server, 0 = not yet. `now` is when it
    was read."""

    task: SubagentTask
    state: State
    spawned: int
    began: int = 0
    ended: int = 0
    rounds: int = 0
    tokens: int = 0
    result: str = ""
    now: int = 0

    @property
    def open(self) -> bool:
        """True while it waits or runs."""
        return self.state in OPEN

    @property
    def age_s(self) -> float:
        """Seconds since it was spawned; for one that ended, how long it took."""
        return max(0, (self.ended or self.now) - self.spawned) / 1000


class AwaitedSubagent(msgspec.Struct, frozen=True):
    """A subagent for the turn that spawned it; `waited_for` while its report must not go to the
    inbox."""

    state: State
    waited_for: bool
    result: str

    @property
    def ended(self) -> bool:
        return self.state not in OPEN


class Subagents:
    """The subagents of all sessions."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def append_step(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        """Store one step of a running subagent; see `Turns.append_step`. Raises ToolFailed for
        an effect, which subagents cannot have."""
        if effect is not None:
            raise ToolFailed("a subagent can only answer; say in your result what should be done")
        # The same script as for turns; a subagent's record plays the part of the session.
        id = claim.member.removeprefix(keys.SUB_PREFIX)
        done = await self._client.run(
            "turns/ledger",
            [keys.leases(JOBS), keys.child(id), keys.ledger(id), keys.queue(JOBS), keys.wake(JOBS)],
            [claim.member, claim.lease_id, step, encode(entry), LEDGER_CAP_BYTES, ""],
            retry_for_s=retry_for_s,
        )
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        if done == -2:
            raise TurnLimited("ledger", f"it wrote more than {LEDGER_CAP_BYTES // 1024 // 1024} MB of results")

    async def save_progress(self, claim: Claim, *, rounds: int, tokens: int) -> None:
        """Store the progress of a running subagent: its rounds so far, and `tokens` more. Raises
        LeaseLost, RedisAway."""
        id = claim.member.removeprefix(keys.SUB_PREFIX)
        names = [keys.leases(JOBS), keys.child(id)]
        if await self._client.run("subagents/save_note", names, [claim.member, claim.lease_id, rounds, tokens]) != 1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")

    async def finish(
        self,
        task: SubagentTask,
        outcome: Outcome,
        result: str,
        *,
        claim: Claim | None,
        now_ms: int,
        retry_for_s: float = 0.0,
    ) -> ReportOutcome:
        """End a subagent, once, and report to its session in the same step. Without a claim it ends
        in an operator's name.

        Raises LeaseLost when another worker has it or it is gone, RedisAway.
        """
        session = task.session
        crash_point("before_child_end")
        done: int = await self._client.run(
            "subagents/end",
            [
                keys.leases(JOBS), keys.child(task.id), keys.session(session), keys.inbox(session), keys.queue(TURNS),
                keys.wake(TURNS),
            ],
            [
                task.id, claim.lease_id if claim else "", outcome, fitted(result).encode("utf-8", "replace"),
                encode(report(task, outcome, result, now_ms=now_ms)), SCHEMA_VERSION,
                self._limits.session_days * DAY_MS,
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        crash_point("after_child_end")
        if done < 0:
            raise LeaseLost(f"the subagent {task.id!r} is somebody else's, or gone")
        return _REPORT_OUTCOMES[done]

    async def cancel(self, session: str, id: str = "", *, turn: int | None = None) -> int:
        """End subagents of a session without a report: all, one, or those of one turn. Return
        how many there were. Raises RedisAway."""
        of_turn = "" if turn is None else turn
        ended: int = await self._client.run("subagents/cancel", [], [session, of_turn, id])
        return ended

    async def detach(self, id: str) -> bool:
        """Let a subagent that its turn waited for report to the inbox instead. Returns False
        when it has ended meanwhile."""
        return bool(await self._client.run("subagents/detach", [keys.child(id)], []))

    async def read_awaited(self, id: str) -> AwaitedSubagent | None:
        """Read a subagent that a turn waits for; None when it is gone. Raises RedisAway."""
        state, wait, result = await self._client.command("HMGET", keys.child(id), "state", "wait", "result")
        if state is None:
            return None
        text = (result or b"").decode(errors="replace")
        return AwaitedSubagent(msgspec.convert(state.decode(), State), wait == b"1", text)

    async def requeue_lost(self, *, look_at: int = 1000) -> int:
        """Queue subagents again that have not ended but are in no queue; return how many. Raises
        RedisAway, Refused."""
        names = [keys.SUBAGENTS, keys.queue(JOBS), keys.wake(keys.SUBAGENT_WAKE)]
        back: int = await self._client.run("subagents/sweep", names, [look_at])
        return back

    async def read_info(self, id: str) -> SubagentInfo | None:
        """Read one subagent; None an hour after its end. Raises RedisAway."""
        found = await self._read_infos([id])
        return found[0] if found else None

    async def state(self, id: str) -> State | None:
        """Read the state of one subagent; None when it is gone. Raises RedisAway."""
        found = await self.read_awaited(id)
        return None if found is None else found.state

    async def of_session(self, session: str) -> list[SubagentInfo]:
        """Return the subagents of a session that run, wait, or ended within the last hour, the
        oldest first."""
        return await self._read_infos(await self._client.command("ZRANGE", keys.children(session), 0, 500))

    async def all(self, *, limit: int = 1000) -> list[SubagentInfo]:
        """Return the subagents of the fleet that have not ended, the oldest first."""
        return await self._read_infos(await self._client.command("ZRANGE", keys.SUBAGENTS, 0, limit - 1))

    async def _read_infos(self, ids: Sequence[str | bytes]) -> list[SubagentInfo]:
        if not ids:
            return []
        names = [id if isinstance(id, str) else id.decode() for id in ids]
        # The server's time, because all times of the record are the server's.
        time, *rows = await self._client.pipeline(
            [("TIME",), *(("HMGET", keys.child(name), *_FIELDS) for name in names)]
        )
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        found = [child for row in rows if (child := _child(row, now)) is not None]
        return sorted(found, key=lambda child: child.spawned)


def _child(row: Sequence[bytes | None], now: int) -> SubagentInfo | None:
    record, state, spawned, began, ended, rounds, tokens, result = row
    if record is None or state is None:
        return None
    try:
        task = decode_task(record)
    except BadRecord:
        return None
    return SubagentInfo(
        task=task,
        state=msgspec.convert(state.decode(), State),
        spawned=int(spawned or 0),
        began=int(began or 0),
        ended=int(ended or 0),
        rounds=int(rounds or 0),
        tokens=int(tokens or 0),
        result=(result or b"").decode(errors="replace"),
        now=now,
    )
