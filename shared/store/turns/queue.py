"""Leases on queue members: who may work on what, and until when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from shared.errors import LeaseLost, TurnLimited
from shared.ids import log_id
from shared.log import logger
from shared.messages.codec import SCHEMA_VERSION, traceparent_of
from shared.messages.sources import Sources, parse_sources
from shared.metrics import REDIS_CLOCK_FELL_BACK
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient, Value, pairs, unknown_script
from shared.store.client.scripts import load, sha
from shared.store.jobs.jobs import QUEUE as JOBS

ACQUIRE: Final = "turns/acquire"

log = logger("queue")


class TurnWork(msgspec.Struct, frozen=True):
    """Everything a turn needs to run; the message, its ledger and the history are raw records.

    `attempt` counts every claim of the message from 1; `errors` and `crashes` count only what went
    wrong. `model_unavailable_ms` is how long ago this message first found its model unavailable, 0
    if it did not; `alone_ms` is since when the provider fails it alone. `memory` is the MEMORY.md
    of `scope`; `preset` is the model chosen for the chat, `""` for the usual one.

    `joined` are number and record of each message that joined so far. `joins_at_start`: messages
    right after this one join a turn when it begins; `steers`: those that come while it runs do,
    too. `shown` are deltas of the text of an earlier attempt that stands on screens. `sources` mark
    the chat, `memory_sources` its memory (see shared.messages.sources). `background`: no person
    waits for the answer; `speaks`: a recording is answered by one, too. `next_due` is the time in
    ms from which the next message is due, if it can simply follow, else `""`."""

    n: int
    record: bytes
    errors: int
    crashes: int
    stop: int
    attempt: int
    model_unavailable_ms: int
    ledger: tuple[bytes, ...]
    history: tuple[bytes, ...]
    scope: str = ""
    memory: str = ""
    memory_version: str = "0"
    preset: str = ""
    joined: tuple[tuple[int, bytes], ...] = ()
    joins_at_start: bool = False
    steers: bool = False
    background: bool = False
    speaks: bool = False
    next_due: str = ""
    sources: Sources = ()
    memory_sources: Sources = ()
    shown: tuple[bytes, ...] = ()
    alone_ms: int = 0


class SubagentWork(msgspec.Struct, frozen=True):
    """Everything a subagent needs; see TurnWork. `age_ms`: since it was first claimed."""

    record: bytes
    errors: int
    crashes: int
    attempt: int
    model_unavailable_ms: int
    ledger: tuple[bytes, ...]
    preset: str
    age_ms: int
    rounds: int
    alone_ms: int = 0


class Claim(msgspec.Struct, frozen=True):
    """An acquired lease and the work it covers. Every guarded write checks `fence`: the member and
    the lease's id, which is owner nonce and token."""

    member: str
    owner: str
    token: str
    waited_ms: int
    owner_lost: bool
    turn: TurnWork | None
    job_crashes: int = 0  # for a plain job: worker crashes while it ran, within about a day
    subagent: SubagentWork | None = None

    @property
    def lease_id(self) -> str:
        return f"{self.owner}:{self.token}"

    @property
    def fence(self) -> tuple[str, str]:
        return self.member, self.lease_id

    def lost(self) -> LeaseLost:
        """Build the error for a write without the lease."""
        return LeaseLost(f"the lease on {self.member!r} is lost")

    @property
    def traceparent(self) -> str | None:
        work = self.turn or self.subagent
        return None if work is None else traceparent_of(work.record)

    @property
    def session(self) -> str:
        return self.member.removeprefix(keys.TURN_PREFIX)


class SubagentCaps(NamedTuple):
    """Subagents that may run at once, of one session and of the fleet; 0 is no limit."""

    per_session: int
    in_all: int


UNCAPPED: Final = SubagentCaps(0, 0)


class LeaseQueue:
    """One queue as one worker sees it. `owner` is the worker's nonce, the same for all its queues.
    `person_share` is the part of the running turns that one person may have while others wait."""

    def __init__(
        self,
        client: RedisClient,
        name: str,
        *,
        owner: str,
        lease_s: float,
        history_window: int = 200,
        subagents: SubagentCaps = UNCAPPED,
        person_share: float = 1.0,
    ) -> None:
        self.name = name
        self.owner = owner
        self.lease_s = lease_s
        self._client = client
        self._window = history_window
        self._subagents = subagents
        self._share = person_share
        self._script = load(ACQUIRE)
        self._wakes = [keys.wake(name), *([keys.wake(keys.SUBAGENT_WAKE)] if name == JOBS else [])]
        self._own_wake = keys.wake(owner)
        self.wait_s = min(1.0, lease_s / 5)
        self._blocking = client.blocking(self.wait_s)

    @property
    def copies(self) -> int:
        """Number of servers that must have a write."""
        return self._client.copies

    async def acquire(
        self, count: int, *, most: int | None = None, grace: bool = False, subagents: int | None = None
    ) -> list[Claim]:
        """Lease up to `count` due members, at most `subagents` of them subagents; subagents beyond
        that stay due. For turns up to `most`, while seven times as many stay for other workers.
        With `grace`, entries whose owner may still live are skipped. Fewer than `count` are
        returned when no more could be leased, or when these hold 2 MB: then the next worker that
        waits, perhaps this one, is woken for the others. An entry whose keys are broken (of another
        type, say) is logged and tried again after a minute."""
        call = self._call(count, most, grace, subagents)
        return self._claims(await self._client.evaluate(self._script, call))

    async def acquire_next(
        self, count: int, *, most: int | None = None, grace: bool = False, subagents: int | None = None
    ) -> list[Claim]:
        """Lease like `acquire` as soon as something is due, at the latest after `wait_s`; with no
        slot for subagents, something other than those. The server goes from the wait to the lease
        by itself, without a round trip. A lease counts from the moment of this call."""
        call = self._call(count, most, grace, subagents)
        lists = self._wakes[:1] if subagents == 0 else self._wakes
        woken, answer = await self._blocking.commands(
            [
                ["BLPOP", *lists, self._own_wake, self.wait_s],
                ["EVALSHA", sha(self._script), *call],
            ]
        )
        if unknown_script(answer):
            return await self.acquire(count, most=most, grace=grace, subagents=subagents)
        if isinstance(answer, ReplyError):
            raise answer
        if isinstance(woken, ReplyError):
            # The server did not wait, because a wake list is broken: work is then found by looking.
            await asyncio.sleep(0 if answer else self.wait_s)
        return self._claims(answer)

    async def end_wait(self) -> None:
        """Make our own waiting `acquire_next` look now. Raises RedisAway."""
        await self._client.pipeline([("LPUSH", self._own_wake, "1"), ("PEXPIRE", self._own_wake, 1000)])

    def _call(self, count: int, most: int | None, grace: bool, subagents: int | None) -> tuple[Value, ...]:
        return self._client.words(
            ACQUIRE,
            {
                "owner": self.owner,
                "lease_ms": int(self.lease_s * 1000),
                "wanted": count,
                "grace": int(grace),
                "known": SCHEMA_VERSION,
                "window": self._window,
                "session_subagents": self._subagents.per_session,
                "all_subagents": self._subagents.in_all,
                "person_share": self._share,
                "subagent_slots": count if subagents is None else subagents,
                "most": most or count,
            },
            keys.Whose(queue=self.name),
        )

    def _claims(self, answer: list[list[Any]]) -> list[Claim]:
        # A row without a token reports an entry with broken keys, or a clock that fell back:
        # log it, and go on with the others. The lease of one that cannot be read lapses.
        claims = []
        for row in answer:
            try:
                if row[0] == b"clock":
                    note_clock_fell(self.name, int(row[2]))
                    continue
                if row[1]:
                    claims.append(self._claim(row))
                    continue
                error = row[2].decode(errors="replace")[:200]
            except (ValueError, TypeError) as exc:
                error = type(exc).__name__
            session = log_id(row[0].decode(errors="replace").removeprefix(keys.TURN_PREFIX))
            log.error("entry broken", session=session, error=error)
        return claims

    def _claim(self, row: list[Any]) -> Claim:
        name, token, waited_ms, lost, *rest = row
        member = name.decode()
        turn = None
        child = None
        job_crashes = 0
        if member.startswith(keys.SUB_PREFIX):
            child = _child_work(rest)
        elif len(rest) == 1:
            job_crashes = int(rest[0])
        elif rest:
            turn = _turn_work(rest)
        owner_lost = lost == b"1"
        return Claim(member, self.owner, token.decode(), int(waited_ms), owner_lost, turn, job_crashes, child)

    async def renew(self, claims: Sequence[Claim], *, retry_for_s: float = 0.0) -> list[int | None]:
        """Renew the leases. Return for each None (lost) or the turn that must stop (0: none)."""
        held = [part for claim in claims for part in (claim.member, claim.token)]
        answer = await self._client.run(
            "turns/renew",
            queue=self.name,
            due=keys.queue(self.name),
            owner=self.owner,
            lease_ms=int(self.lease_s * 1000),
            held=msgspec.json.encode(held),
            retry_for_s=retry_for_s,
        )
        return [None if stop < 0 else stop for stop in answer]

    async def confirm(self, claim: Claim) -> int | None:
        """Renew a lease; return how many steps its ledger has when all servers that a write waits
        for have them, None when the lease is lost. Raises RedisAway when too few have them in
        time."""
        [renewed] = await self.renew([claim])
        # Of the server that answers after the renewal: after a fail-over it may lack steps that
        # another one accepted.
        steps = await self._client.confirmed("XLEN", keys.ledger(claim.member.partition(":")[2]))
        return None if renewed is None else int(steps)

    async def release(self, claim: Claim, *, delay_s: float = 0.0, count: str = "", retry_for_s: float = 0.0) -> None:
        """Give a lease back; the work is due again after `delay_s`. `count` may be `errors`,
        `crashes` (of a process with more than this work), `isolated` (the crash of a child of the
        quarantine), `away` (the model is unavailable: stored once, with the time), `alone` (for
        this work alone, likewise), or `newer` (a worker of a newer release is: as `away`). For a
        plain job only crashes count, and a job of memory rests for a minute after one. Raises
        LeaseLost."""
        released = await self._client.run(
            "turns/release",
            queue=self.name,
            record=keys.attempts(claim.member),
            member=claim.member,
            lease=claim.lease_id,
            delay_ms=int(delay_s * 1000),
            note=count,
            retry_for_s=retry_for_s,
        )
        if released != b"released":
            raise claim.lost()

    async def release_unknown(self, running: Iterable[Claim]) -> int:
        """Release leases of ours that we do not know of, after a lost reply. Return how many."""
        # Compare member and token: an older lease of ours on the same member is unknown, too.
        known = {(claim.member, claim.token) for claim in running}
        count = 0
        for member, token in await leases_of_owner(self._client, keys.leases(self.name), self.owner):
            if (member, token) not in known:
                # Since the scan the lease may have ended, or another worker may have claimed it.
                with contextlib.suppress(LeaseLost):
                    await self.release(Claim(member, self.owner, token, 0, False, None))
                    count += 1
        return count

    async def close(self) -> None:
        """Close the blocking connection."""
        await self._blocking.close()


async def leases_of_owner(client: RedisClient, leases: str, owner: str) -> list[tuple[str, str]]:
    """Return every lease of this owner in the HASH `leases`: member and token. Raises RedisAway."""
    found: dict[str, str] = {}
    # HSCAN may return an entry twice, which the dict absorbs.
    async for flat in client.scan("HSCAN", leases):
        for member, lease in pairs(flat):
            whose, _, token = lease.decode(errors="replace").partition(":")
            if whose == owner:
                found[member.decode(errors="replace")] = token
    return list(found.items())


def note_clock_fell(queue: str, fell_ms: int) -> None:
    """Report that the server's clock fell back, and that a script has put the times of a queue
    right."""
    log.error("redis clock fell back", queue=queue, seconds=fell_ms / 1000, doing="moved what waits by as much")
    REDIS_CLOCK_FELL_BACK.inc()


def ledger_full(who: str, cap_bytes: int) -> TurnLimited:
    """Build the error for a ledger that has reached its size."""
    return TurnLimited("ledger", f"{who} wrote more than {cap_bytes // 1024 // 1024} MB of results")


def _turn_work(row: list[Any]) -> TurnWork:
    # The last part is missing at the first attempt.
    n, record, attempt, history, scope, memory, version, preset, stop, marks, next_due, *rest = row
    sources, memory_sources, *more = rest
    errors, crashes, away_ms, ledger, joined, *shown = more[0] if more else (0, 0, 0, (), ())
    messages = tuple((int(number), message) for number, message in pairs(joined)) if joined else ()
    # By position: the names of so many fields take longer than all the rest here.
    return TurnWork(
        int(n),
        record,
        int(errors),
        int(crashes),
        int(stop),
        attempt,
        away_ms,
        tuple(ledger),
        tuple(history),
        scope.decode(errors="replace"),
        memory.decode(errors="replace"),
        version.decode(errors="replace"),
        preset.decode(errors="replace"),
        messages,
        b"a" in marks,
        b"s" in marks,
        b"b" in marks,
        b"v" in marks,
        next_due.decode(),
        parse_sources(sources),
        parse_sources(memory_sources),
        tuple(shown[0]) if shown else (),
        *shown[1:],
    )


def _child_work(row: list[Any]) -> SubagentWork:
    record, errors, crashes, attempt, away_ms, ledger, preset, age_ms, rounds, alone_ms = row
    counts = int(errors), int(crashes), attempt, away_ms
    return SubagentWork(record, *counts, tuple(ledger), preset.decode(errors="replace"), age_ms, int(rounds), alone_ms)
