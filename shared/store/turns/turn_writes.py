"""Guarded writes of a running turn: steps of its ledger, and the commit at its end. Turns that end
at the same moment share one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from shared.errors import BadInput, TurnStopped
from shared.ids import KEEP_MS, is_ephemeral, is_stored, split_session
from shared.messages.codec import PLAIN_VERSION, SCHEMA_VERSION, encode
from shared.messages.effects import Effect, SayEffect, SpawnEffect
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.sources import Sources, pack_sources
from shared.messages.transcript import ApprovalEntry, CallsEntry, JoinEntry, LedgerEntry, TranscriptEntry, decode_ledger
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, pairs, with_retries
from shared.store.jobs.jobs import QUEUE as JOBS
from shared.store.turns.inbox import TURNS, InboxLimits
from shared.store.turns.queue import Claim, ledger_full

LEDGER_CAP_BYTES: Final = 2 * 1024 * 1024
HISTORY_CAP_BYTES: Final = 2 * 1024 * 1024
CHILDREN_CAP: Final = 100
"""Subagents of one session that have not ended: each brings a report into the bounded inbox."""

AT_ONCE: Final = 64  # turns in one call; the server does nothing else meanwhile
AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of entries and lines in one call; a turn with more goes alone."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Reason why a message gets no answer, its raw record, and the words of the model's
    provider."""

    reason: str
    record: bytes
    words: str = ""


class JoinedMessages(msgspec.Struct, frozen=True):
    """Messages that joined a turn: the ledger's entry of it, and number and raw record of each."""

    entry: JoinEntry
    records: tuple[tuple[int, bytes], ...]


class Committed(msgspec.Struct, frozen=True):
    """Result of a commit: whether this call was the first, the entries of the conversation now,
    and how many of the oldest were dropped because of its cap. `untitled`: the title of the chat is
    its first words, for which a model may give another one."""

    first: bool
    entries: int = 0
    dropped: int = 0
    untitled: bool = False


class Turns:
    """Writes of a worker for its turns. A write that does not hold its lease raises LeaseLost."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self._commits = CommitBatcher(client, self._limits, HISTORY_CAP_BYTES)

    async def append_step(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        """Store step number `step` (from 1), and carry out `effect` with it. The same step again
        changes nothing. Raises LeaseLost, RedisAway, TurnLimited when the ledger has 2 MB,
        TurnStopped for a spawn of a turn that was told to stop, and BadInput, with nothing written,
        for a chat that does not exist (`no_chat`) and too many subagents (`turn_spawned_enough`,
        `session_spawned_enough`)."""
        written = self._write(claim, step, encode(entry), effect)
        match await with_retries(written, retry_for_s):
            case b"lost":
                raise claim.lost()
            case b"full":
                raise ledger_full("this turn", LEDGER_CAP_BYTES)
            case b"no_chat" if effect is not None:
                raise BadInput("no_chat", f"there is no chat {effect.to!r}")
            case b"turn_full" if isinstance(effect, SpawnEffect):
                most = f"one turn starts at most {effect.per_turn} subagents"
                raise BadInput("turn_spawned_enough", most)
            case b"session_full":
                most = f"{CHILDREN_CAP} subagents of this chat have not ended yet"
                raise BadInput("session_spawned_enough", most)
            case b"stopped":
                raise TurnStopped

    async def park(
        self,
        claim: Claim,
        queue: str,
        step: int,
        entry: ApprovalEntry | CallsEntry,
        line: OutboundMessage,
        *,
        wait_s: float,
        cap_bytes: int = LEDGER_CAP_BYTES,
        retry_for_s: float = 0.0,
    ) -> bool:
        """Ask a person or a program as step number `step`, with `line` in the chat's log, and give
        the lease up; if that step asks this already, go on waiting. An answer counts for `wait_s`
        from the first call on. Return True when the turn waits. False: the time is over, nobody
        answered, and the lease is kept. Raises TurnStopped when the turn was told to stop,
        TurnLimited when its ledger is full, LeaseLost, RedisAway."""
        assert claim.turn is not None
        done = await self._client.run(
            "waits/park",
            session=claim.session,
            queue=queue,
            member=claim.member,
            lease=claim.lease_id,
            step=step,
            question=encode(entry),
            line=encode(line),
            wait_ms=int(wait_s * 1000),
            n=claim.turn.n,
            id=entry.id,
            state="open" if isinstance(entry, ApprovalEntry) else "calls",
            tool=entry.tool if isinstance(entry, ApprovalEntry) else " ".join(call.id for call in entry.calls),
            cap_bytes=cap_bytes,
            keep_log_ms=self._limits.log_ms,
            keep_session_ms=self._limits.session_ms,
            retry_for_s=retry_for_s,
        )
        match done:
            case b"lost":
                raise claim.lost()
            case b"full":
                raise ledger_full("this turn", cap_bytes)
            case b"stopped":
                raise TurnStopped
        return bool(done != b"late")

    def _write(self, claim: Claim, step: int, record: bytes, effect: Effect | None) -> Callable[[], Awaitable[bytes]]:
        """Return the call that writes a step and carries out its effect."""
        step_of_turn = partial(
            self._client.run,
            session=claim.session,
            queue=TURNS,
            member=claim.member,
            lease=claim.lease_id,
            step=step,
            record=record,
            cap_bytes=LEDGER_CAP_BYTES,
        )
        match effect:
            case None:
                return partial(step_of_turn, "turns/step")
            case SayEffect(session=session, line=line):
                channel, chat_id = split_session(session)
                return partial(
                    step_of_turn,
                    "turns/say",
                    to_session=keys.session(session),
                    to_outbox=keys.outbox(session),
                    to_live=keys.live(session),
                    to_history=keys.history(session),
                    chats=keys.chats(channel, effect.listed_for or None),
                    line=encode(line),
                    keep_log_ms=self._limits.log_ms,
                    chat_id=chat_id,
                    keep_session_ms=self._limits.session_ms,
                    history_bytes=HISTORY_CAP_BYTES,
                    sources=pack_sources(effect.sources),
                    entries=pack([*map(encode, effect.history)]),
                )
            case SpawnEffect(task=task, per_turn=per_turn):
                return partial(
                    step_of_turn,
                    "turns/spawn",
                    child=keys.child(task.id),
                    jobs=keys.queue(JOBS),
                    subagent_wake=keys.wake(keys.SUBAGENT_WAKE),
                    id=task.id,
                    task=encode(task),
                    version=PLAIN_VERSION,
                    waits=int(task.wait),
                    n=task.turn,
                    most_of_turn=per_turn,
                    most_of_session=CHILDREN_CAP,
                )

    async def join_waiting(
        self, claim: Claim, step: int, *, at_start: bool, retry_for_s: float = 0.0
    ) -> JoinedMessages | None:
        """Let messages that wait right after the turn join it, as step number `step`; None when
        none does. The same step again returns the messages that it took then. Raises TurnStopped
        when the turn was told to stop, LeaseLost, RedisAway."""
        assert claim.turn is not None
        done, flat, record = await self._client.run(
            "turns/take",
            session=claim.session,
            queue=TURNS,
            member=claim.member,
            lease=claim.lease_id,
            n=claim.turn.n,
            step=step,
            at_start=int(at_start),
            cap_bytes=LEDGER_CAP_BYTES,
            known_version=SCHEMA_VERSION,
            most=self._limits.cap,
            retry_for_s=retry_for_s,
        )
        if done == b"lost":
            raise claim.lost()
        if done == b"stopped":
            raise TurnStopped
        if done == b"none":
            return None
        entry = decode_ledger(record)
        assert isinstance(entry, JoinEntry)
        return JoinedMessages(entry, tuple((int(n), record) for n, record in pairs(flat)))

    async def joined(self, claim: Claim) -> list[tuple[int, bytes]]:
        """Read number and raw record of each message that joined the turn. Raises RedisAway."""
        assert claim.turn is not None
        session = claim.session
        joined_field, waiting = await self._client.pipeline(
            [("HGET", keys.session(session), "taken"), ("XRANGE", keys.inbox(session), "-", "+")]
        )
        turn, *numbers = map(int, (joined_field or b"0").split())
        records = {int(id.split(b"-")[0]): fields[3] for id, fields in waiting}
        return [(n, records[n]) for n in numbers if n in records] if turn == claim.turn.n else []

    async def superseded(self, claim: Claim) -> bool:
        """Tell whether a newer message that replaces this turn stopped it. Raises RedisAway."""
        assert claim.turn is not None
        cut = await self._client.command("HGET", keys.session(claim.session), "cut")
        return int(cut or 0) > claim.turn.n

    async def commit(
        self,
        claim: Claim,
        *,
        history: Sequence[TranscriptEntry],
        lines: Sequence[LogLine],
        event: TurnEvent,
        dead: DeadLetter | None = None,
        sources: Sources = (),
        retry_for_s: float = 0.0,
    ) -> Committed:
        """Commit the turn, all at once: history, lines for the chat, inbox, ledger, lease, the
        `sources` that it adds to the mark of the chat, and a dead letter if given. Raises
        LeaseLost, RedisAway."""
        assert claim.turn is not None
        # Nobody goes on with an ephemeral session, and nothing of it is worth remembering.
        passing = is_ephemeral(claim.session)
        history = () if passing else history
        entries = [*map(encode, history)]
        written = [*map(encode, lines)]
        letter = None if dead is None else (dead.reason.encode(), dead.record, dead.words.encode())
        marks = "p" if passing else "s" if is_stored(claim.session) else ""
        turn = claim.turn
        packed = pack_sources(sources)
        end = str(turn.n), encode_live(event), marks, turn.next_due, entries, written, packed, letter
        size = sum(map(len, entries)) + sum(map(len, written))
        commit = partial(self._commits.send, claim.fence, end, size)
        # The script of the release before does not say whether the chat is untitled.
        done, now_there, dropped, *untitled = await with_retries(commit, retry_for_s)
        if done == b"lost":
            raise claim.lost()
        return Committed(done == b"committed", now_there, dropped, untitled == [1])


class _End(NamedTuple):
    """Commit of one turn: its fence, what commit.lua has of it in `ends`, the bytes of entries and
    lines in that, and its future reply."""

    fence: tuple[str, str]
    turn: tuple[object, ...]
    size: int
    answer: asyncio.Future[list[Any]]


class CommitBatcher:
    """Batches all commits of one event-loop iteration into one script call, which costs little
    more than a single commit. Each commit still succeeds or fails on its own."""

    def __init__(self, client: RedisClient, limits: InboxLimits, history_bytes: int) -> None:
        self._client = client
        self._limits = limits
        self._history_bytes = history_bytes
        self._waiting: list[_End] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, fence: tuple[str, str], turn: tuple[object, ...], size: int) -> list[Any]:
        """Commit one turn and return the reply of commit.lua. Raises RedisAway, ReplyError."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            # Everything that is committed until the loop gets here goes into the same call.
            loop.call_soon(self._go)
        end = _End(fence, turn, size, loop.create_future())
        self._waiting.append(end)
        return await end.answer

    def _go(self) -> None:
        waiting = self._waiting
        self._waiting = []
        batch: list[_End] = []
        size = 0
        for end in waiting:
            # A batch ends before it exceeds a limit: one large turn never delays small ones much.
            if batch and (size + end.size > AT_ONCE_BYTES or len(batch) == AT_ONCE):
                self._start(batch)
                batch = []
                size = 0
            size += end.size
            batch.append(end)
        self._start(batch)

    def _start(self, batch: list[_End]) -> None:
        sending = asyncio.create_task(self._send(batch))
        # The event loop keeps only weak references to tasks.
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[_End]) -> None:
        answers: Sequence[list[Any] | Exception]
        try:
            answers = [
                ReplyError(answer[1].decode(errors="replace")) if answer[0] == b"broken" else answer
                for answer in await self._client.run(
                    "turns/commit",
                    queue=TURNS,
                    keep_session_ms=self._limits.session_ms,
                    keep_log_ms=self._limits.log_ms,
                    idle_ms=self._limits.idle_ms,
                    passing_session_ms=KEEP_MS,
                    passing_log_ms=KEEP_MS,
                    passing_idle_ms=0,
                    history_bytes=self._history_bytes,
                    fences=pack([*chain(*(end.fence for end in batch))]),
                    ends=pack([end.turn for end in batch]),
                )
            ]
        # The connection closes: those who wait must not wait for ever.
        except asyncio.CancelledError:
            for end in batch:
                end.answer.cancel()
            raise
        # The call as a whole failed, so it failed for every turn in it; each may be sent again.
        except Exception as exc:
            answers = [exc] * len(batch)
        for end, answer in zip(batch, answers, strict=True):
            if end.answer.done():
                continue  # its turn was cancelled
            if isinstance(answer, Exception):
                end.answer.set_exception(answer)
            else:
                end.answer.set_result(answer)
