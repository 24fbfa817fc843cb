"""Subagents: writes of a worker that runs one, their end, and what people see of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import LeaseLost, ToolFailed
from shared.messages.codec import PLAIN_VERSION, encode
from shared.messages.effects import Effect
from shared.messages.sources import Sources, merge_sources, pack_sources, parse_sources
from shared.messages.subagent import UNKNOWN_SOURCES, Outcome, SubagentTask, decode_task, fitted, report
from shared.messages.transcript import LedgerEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient, server_ms
from shared.store.jobs.jobs import QUEUE as JOBS
from shared.store.turns.inbox import TURNS, InboxLimits
from shared.store.turns.queue import Claim, ledger_full
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES

State = Literal["queued", "running", "ok", "failed", "timeout", "cancelled", "poison"]
ReportOutcome = Literal["reported", "kept", "dropped", "known"]
"""Outcome of a report: it is in the inbox, the turn that waits will read it, its conversation is
over, or the subagent had ended before."""

OPEN: Final = ("queued", "running")
_FIELDS: Final = ("state", "spawned", "began", "ended", "rounds", "tokens", "result")


class SubagentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent for people to see, read at `now`; times are ms of the server, 0 = not yet."""

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
    """A subagent for its turn; `waited_for` while its report must not go to the inbox. `sources`
    mark its result."""

    state: State
    waited_for: bool
    result: str
    sources: Sources = ()

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
        """Store one step of a running subagent; see `Turns.append_step`. An `effect` raises
        ToolFailed."""
        if effect is not None:
            raise ToolFailed("a subagent can only answer; say in your result what should be done")
        # The same script as for turns; a subagent's record plays the part of the session.
        id = claim.member.removeprefix(keys.SUB_PREFIX)
        done = await self._client.run(
            "subagents/step",
            queue=JOBS,
            child=keys.child(id),
            ledger=keys.ledger(id),
            member=claim.member,
            lease=claim.lease_id,
            step=step,
            record=encode(entry),
            cap_bytes=LEDGER_CAP_BYTES,
            retry_for_s=retry_for_s,
        )
        if done == b"lost":
            raise claim.lost()
        if done == b"full":
            raise ledger_full("it", LEDGER_CAP_BYTES)

    async def save_progress(self, claim: Claim, *, rounds: int, tokens: int) -> None:
        """Store a subagent's rounds, and `tokens` more. Raises LeaseLost, RedisAway."""
        noted = await self._client.run(
            "subagents/save_note",
            queue=JOBS,
            child=keys.attempts(claim.member),
            member=claim.member,
            lease=claim.lease_id,
            rounds=rounds,
            tokens=tokens,
        )
        if noted != b"noted":
            raise claim.lost()

    async def finish(
        self,
        task: SubagentTask,
        outcome: Outcome,
        result: str,
        *,
        claim: Claim | None,
        now_ms: int,
        sources: Sources = (),
        retry_for_s: float = 0.0,
    ) -> ReportOutcome:
        """End a subagent, once, and report to its session in the same step. What marks its task,
        and the `sources` that it read, mark the result. Without a claim it ends in an operator's
        name. Raises LeaseLost (another worker's, or gone), RedisAway."""
        sources = merge_sources(task.sources, sources)
        message = encode(report(task, outcome, result, now_ms=now_ms, sources=sources))
        crash_point("before_child_end")
        done = await self._client.run(
            "subagents/end",
            session=task.session,
            queue=JOBS,
            child=keys.child(task.id),
            turns=keys.queue(TURNS),
            turns_wake=keys.wake(TURNS),
            id=task.id,
            lease=claim.lease_id if claim else "",
            outcome=outcome,
            result=fitted(result).encode("utf-8", "replace"),
            report=message,
            version=PLAIN_VERSION,
            keep_session_ms=self._limits.session_ms,
            sources=pack_sources(sources),
            retry_for_s=retry_for_s,
        )
        crash_point("after_child_end")
        if done == b"lost":
            raise LeaseLost(f"the subagent {task.id!r} is somebody else's, or gone")
        reported: ReportOutcome = done.decode()
        return reported

    async def cancel(self, session: str, id: str = "", *, turn: int | None = None) -> int:
        """End subagents without a report: all, one, or a turn's. Return how many."""
        of_turn = "" if turn is None else turn
        ended: int = await self._client.run("subagents/cancel", session=session, turn=of_turn, id=id)
        return ended

    async def detach(self, id: str) -> bool:
        """Let a subagent that its turn waited for report to the inbox. False: it has ended."""
        return bool(await self._client.run("subagents/detach", child=keys.child(id)))

    async def read_awaited(self, id: str) -> AwaitedSubagent | None:
        """Read a subagent that a turn waits for; None when it is gone. Raises RedisAway."""
        fields = "state", "wait", "result", "sources"
        state, wait, result, sources = await self._client.command("HMGET", keys.child(id), *fields)
        if state is None:
            return None
        text = (result or b"").decode(errors="replace")
        # The release before stored results without it.
        mark = UNKNOWN_SOURCES if sources is None else parse_sources(sources)
        return AwaitedSubagent(msgspec.convert(state.decode(), State), wait == b"1", text, mark)

    async def requeue_lost(self, *, look_at: int = 1000) -> int:
        """Queue open subagents that are in no queue; return how many. Raises RedisAway, Refused."""
        back: int = await self._client.run(
            "subagents/sweep", jobs=keys.queue(JOBS), subagent_wake=keys.wake(keys.SUBAGENT_WAKE), most=look_at
        )
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
        """Return a session's subagents, also those that ended within an hour, the oldest first."""
        ids = await self._client.command("ZRANGE", keys.children(session), 0, 500)
        return await self._read_infos(ids)

    async def of_sessions(self, sessions: Sequence[str], *, each: int = 50) -> list[list[SubagentInfo]]:
        """Return the newest `each` subagents of several sessions, as `of_session` does, in two
        round trips."""
        # An ended one has a score below 0: those that are open come last.
        ids = await self._client.pipeline([("ZRANGE", keys.children(one), -each, -1) for one in sessions])
        found: dict[str, list[SubagentInfo]] = {}
        for one in await self._read_infos([id for page in ids for id in page]):
            found.setdefault(one.task.session, []).append(one)
        return [found.get(session, []) for session in sessions]

    async def all(self, *, limit: int = 1000) -> list[SubagentInfo]:
        """Return the subagents of the fleet that have not ended, the oldest first."""
        ids = await self._client.command("ZRANGE", keys.SUBAGENTS, 0, limit - 1)
        return await self._read_infos(ids)

    async def _read_infos(self, ids: Sequence[str | bytes]) -> list[SubagentInfo]:
        if not ids:
            return []
        children = [keys.child(id if isinstance(id, str) else id.decode()) for id in ids]
        # The server's time, because all times of the record are the server's.
        time, *rows = await self._client.pipeline([("TIME",), *(("HMGET", child, "m", *_FIELDS) for child in children)])
        found = [child for row in rows if (child := _child(row, server_ms(time))) is not None]
        return sorted(found, key=lambda child: child.spawned)


def _child(row: Sequence[bytes | None], now: int) -> SubagentInfo | None:
    record, *values = row
    task = decode_task.or_none(record) if record is not None else None
    # A field that is missing has its default.
    known = {
        name: value.decode(errors="replace") for name, value in zip(_FIELDS, values, strict=True) if value is not None
    }
    if task is None or "state" not in known:
        return None
    return msgspec.convert({"spawned": 0, **known, "task": task, "now": now}, SubagentInfo, strict=False)
