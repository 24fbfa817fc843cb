"""Guarded writes of a running turn: steps of its ledger, and the commit at its end. Turns that end
at the same moment share one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from shared.errors import BadInput, TurnStopped
from shared.ids import KEEP_MS, is_ephemeral, split_session
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.effects import Effect, SayEffect, SpawnEffect
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine
from shared.messages.transcript import JoinEntry, LedgerEntry, TranscriptEntry, decode_ledger
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient, Value, pairs, with_retries
from shared.store.jobs.jobs import QUEUE as JOBS
from shared.store.turns.approvals import Approvals
from shared.store.turns.inbox import TURNS, InboxLimits
from shared.store.turns.queue import Claim, ledger_full

LEDGER_CAP_BYTES: Final = 2 * 1024 * 1024
HISTORY_CAP_BYTES: Final = 2 * 1024 * 1024
CHILDREN_CAP: Final = 100
"""Subagents of one session that have not ended: each brings a report into the bounded inbox."""

AT_ONCE: Final = 64  # turns in one call; the server does nothing else meanwhile
AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of entries and lines in one call; a turn with more goes alone."""

_KEYS: Final = (keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS), keys.DEAD, keys.IDLE)


class DeadLetter(msgspec.Struct, frozen=True):
    """Reason why a message gets no answer, and its raw record."""

    reason: str
    record: bytes


class JoinedMessages(msgspec.Struct, frozen=True):
    """Messages that joined a turn: the ledger's entry of it, and number and raw record of each."""

    entry: JoinEntry
    records: tuple[tuple[int, bytes], ...]


class Committed(msgspec.Struct, frozen=True):
    """Result of a commit: whether this call was the first, the entries of the conversation now,
    and how many of the oldest were dropped because of its cap."""

    first: bool
    entries: int = 0
    dropped: int = 0


class Turns:
    """Writes of a worker for its turns. A write that does not hold its lease raises LeaseLost."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self.approvals = Approvals(client, self._limits)
        self._commits = CommitBatcher(client, self._limits, HISTORY_CAP_BYTES)

    async def append_step(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        """Store step number `step` (from 1), and carry out `effect` with it. The same step again
        changes nothing. Raises LeaseLost, RedisAway, TurnLimited when the ledger has 2 MB,
        TurnStopped for a spawn of a turn that was told to stop, and BadInput, with nothing written,
        for a chat that does not exist (`no_chat`) and too many subagents (`turn_spawned_enough`,
        `session_spawned_enough`)."""
        turn = keys.leases(TURNS), keys.session(claim.session), keys.ledger(claim.session)
        effect_keys, effect_args = self._effect(effect)
        done = await self._client.run(
            "turns/ledger",
            [*turn, keys.queue(TURNS), keys.wake(TURNS), *effect_keys],
            [*claim.fence, step, encode(entry), LEDGER_CAP_BYTES, *effect_args],
            retry_for_s=retry_for_s,
        )
        # The codes are those in the header of the script.
        match done:
            case -1:
                raise claim.lost()
            case -2:
                raise ledger_full("this turn", LEDGER_CAP_BYTES)
            case -3 if effect is not None:
                raise BadInput("no_chat", f"there is no chat {effect.to!r}")
            case -4 if isinstance(effect, SpawnEffect):
                most = f"one turn starts at most {effect.per_turn} subagents"
                raise BadInput("turn_spawned_enough", most)
            case -5:
                most = f"{CHILDREN_CAP} subagents of this chat have not ended yet"
                raise BadInput("session_spawned_enough", most)
            case -6:
                raise TurnStopped

    async def join_waiting(
        self, claim: Claim, step: int, *, at_start: bool, retry_for_s: float = 0.0
    ) -> JoinedMessages | None:
        """Let messages that wait right after the turn join it, as step number `step`; None when
        none does. The same step again returns the messages that it took then. Raises TurnStopped
        when the turn was told to stop, LeaseLost, RedisAway."""
        assert claim.turn is not None
        session = claim.session
        chat = [kind(session) for kind in (keys.session, keys.inbox, keys.ledger)]
        done, flat, record = await self._client.run(
            "turns/take",
            [keys.leases(TURNS), *chat, keys.queue(TURNS), keys.wake(TURNS), keys.live(session)],
            [
                *(*claim.fence, claim.turn.n, step, int(at_start)),
                *(LEDGER_CAP_BYTES, SCHEMA_VERSION, self._limits.cap),
            ],
            retry_for_s=retry_for_s,
        )
        if done == -1:
            raise claim.lost()
        if done == -2:
            raise TurnStopped
        if done == 0:
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

    def _effect(self, effect: Effect | None) -> tuple[list[str], list[Value]]:
        """Return keys and arguments of ledger.lua for an effect."""
        match effect:
            case None:
                return [], [""]
            case SayEffect(session=session, line=line):
                channel, chat_id = split_session(session)
                chat = [kind(session) for kind in (keys.session, keys.outbox, keys.live, keys.history)]
                kept = self._limits.log_ms, chat_id, self._limits.session_ms, HISTORY_CAP_BYTES
                history = map(encode, effect.history)
                listed = keys.chats(channel, effect.listed_for or None)
                return [*chat, listed], ["say", encode(line), *kept, *history]
            case SpawnEffect(task=task, per_turn=per_turn):
                child = keys.child(task.id), keys.children(task.session), keys.SUBAGENTS
                record = encode(task), SCHEMA_VERSION, int(task.wait), task.turn
                return (
                    [*child, keys.queue(JOBS), keys.wake(keys.SUBAGENT_WAKE)],
                    ["spawn", task.id, *record, per_turn, CHILDREN_CAP],
                )

    async def commit(
        self,
        claim: Claim,
        *,
        history: Sequence[TranscriptEntry],
        lines: Sequence[LogLine],
        event: TurnEvent,
        dead: DeadLetter | None = None,
        retry_for_s: float = 0.0,
    ) -> Committed:
        """Commit the turn, all at once: history, lines for the chat, inbox, ledger, lease, and a
        dead letter if given. Raises LeaseLost, RedisAway."""
        assert claim.turn is not None
        # Nobody goes on with an ephemeral session, and nothing of it is worth remembering.
        passing = is_ephemeral(claim.session)
        history = () if passing else history
        brought = [*map(encode, history), *map(encode, lines)]
        if dead is not None:
            brought += dead.reason.encode(), dead.record
        marks = ("p" if passing else "") + ("d" if dead else "")
        n, next_due = claim.turn.n, claim.turn.next_due
        end = *claim.fence, n, encode_live(event), marks, next_due, len(history), len(lines)
        commit = partial(self._commits.send, end, brought)
        done, entries, dropped = await with_retries(commit, retry_for_s)
        if done == -1:
            raise claim.lost()
        return Committed(done == 1, entries, dropped)


class _End(NamedTuple):
    """Commit of one turn: arguments of commit.lua, its entries and lines, and its future reply."""

    args: Sequence[Value]
    brought: Sequence[bytes]
    answer: asyncio.Future[list[int]]


class CommitBatcher:
    """Batches all commits of one event-loop iteration into one script call, which costs little
    more than a single commit. Each commit still succeeds or fails on its own."""

    def __init__(self, client: RedisClient, limits: InboxLimits, history_bytes: int) -> None:
        self._client = client
        kept = limits.session_ms, limits.log_ms, limits.idle_ms
        self._of_all: list[Value] = [*kept, KEEP_MS, KEEP_MS, 0, history_bytes]
        self._waiting: list[_End] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, args: Sequence[Value], brought: Sequence[bytes]) -> list[int]:
        """Commit one turn and return the reply of commit.lua. Raises RedisAway, ReplyError."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            # Everything that is committed until the loop gets here goes into the same call.
            loop.call_soon(self._go)
        end = _End(args, brought, loop.create_future())
        self._waiting.append(end)
        return await end.answer

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        batch: list[_End] = []
        size = 0
        for end in waiting:
            # A batch ends before it exceeds a limit: one large turn never delays small ones much.
            more = sum(map(len, end.brought))
            if batch and (size + more > AT_ONCE_BYTES or len(batch) == AT_ONCE):
                self._start(batch)
                batch, size = [], 0
            size += more
            batch.append(end)
        self._start(batch)

    def _start(self, batch: list[_End]) -> None:
        sending = asyncio.create_task(self._send(batch))
        # The event loop keeps only weak references to tasks.
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[_End]) -> None:
        answers: Sequence[list[int] | Exception]
        try:
            values = chain(*(end.args for end in batch), *(end.brought for end in batch))
            args = [len(batch), *self._of_all, *values]
            answers = [
                ReplyError(answer[1].decode(errors="replace")) if answer[0] == -2 else answer
                for answer in await self._client.run("turns/commit", _KEYS, args)
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
