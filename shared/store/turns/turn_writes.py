"""Guarded writes of a running turn: steps of its ledger, and the commit at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.errors import BadInput, LeaseLost, TurnLimited, TurnStopped
from shared.ids import is_ephemeral, split_session
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.effects import Effect, SayEffect, SpawnEffect
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine
from shared.messages.transcript import JoinEntry, LedgerEntry, TranscriptEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value, with_retries
from shared.store.jobs.jobs import QUEUE as JOBS
from shared.store.turns.approvals import Approvals
from shared.store.turns.commit_batch import CommitBatcher
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits
from shared.store.turns.queue import Claim

LEDGER_CAP_BYTES: Final = 2 * 1024 * 1024
HISTORY_CAP_BYTES: Final = 2 * 1024 * 1024
CHILDREN_CAP: Final = 100
"""Subagents of one session that have not ended. Each brings a report into the inbox, whose size
must be bounded."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Reason why a message gets no answer, and its raw record."""

    reason: str
    record: bytes


class JoinedMessages(msgspec.Struct, frozen=True):
    """Messages that joined a turn: the entry of the ledger that records it, and number and raw
    record of each."""

    entry: JoinEntry
    records: tuple[tuple[int, bytes], ...]


class Committed(msgspec.Struct, frozen=True):
    """Result of a commit: whether this call was the first, the entries of the conversation now,
    and how many of the oldest were dropped because it was over its cap."""

    first: bool
    entries: int = 0
    dropped: int = 0


class Turns:
    """Writes of a worker for the turns it has leased. Every write names its lease; without it
    the write is refused with LeaseLost."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self.approvals = Approvals(client, self._limits)
        self._commits = CommitBatcher(client, self._limits, HISTORY_CAP_BYTES)

    async def append_step(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        """Store step number `step` (from 1), and carry out `effect` with it. The same step again
        changes nothing.

        Raises LeaseLost, RedisAway, TurnLimited when the ledger has 2 MB, TurnStopped for a
        spawn of a turn that was told to stop, and BadInput, with nothing written, for a chat
        that does not exist (`no_chat`) and too many subagents (`turn_spawned_enough`,
        `session_spawned_enough`).
        """
        effect_keys, effect_args = self._effect(effect)
        done = await self._client.run(
            "turns/ledger",
            [
                keys.leases(TURNS), keys.session(claim.session), keys.ledger(claim.session), keys.queue(TURNS),
                keys.wake(TURNS), *effect_keys,
            ],
            [claim.member, claim.lease_id, step, encode(entry), LEDGER_CAP_BYTES, *effect_args],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        # The codes are those in the header of the script.
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        if done == -2:
            raise TurnLimited("ledger", f"this turn wrote more than {LEDGER_CAP_BYTES // 1024 // 1024} MB of results")
        if done == -3 and effect is not None:
            raise BadInput("no_chat", f"there is no chat {effect.to!r}")
        if done == -4 and isinstance(effect, SpawnEffect):
            raise BadInput("turn_spawned_enough", f"one turn starts at most {effect.per_turn} subagents")
        if done == -6:
            raise TurnStopped
        if done == -5:
            raise BadInput("session_spawned_enough", f"{CHILDREN_CAP} subagents of this chat have not ended yet")

    async def join_waiting(
        self, claim: Claim, step: int, *, at_start: bool, retry_for_s: float = 0.0
    ) -> JoinedMessages | None:
        """Let messages that wait right after the turn join it, as step number `step`; None when
        none does.

        The same step again returns the messages that it took then. Raises TurnStopped when the
        turn was told to stop (waiting messages are not part of it), LeaseLost, RedisAway.
        """
        assert claim.turn is not None
        session = claim.session
        done, flat, record = await self._client.run(
            "turns/take",
            [
                keys.leases(TURNS), keys.session(session), keys.inbox(session), keys.ledger(session), keys.queue(TURNS),
                keys.wake(TURNS), keys.live(session),
            ],
            [
                claim.member, claim.lease_id, claim.turn.n, step, int(at_start), LEDGER_CAP_BYTES, SCHEMA_VERSION,
                self._limits.cap,
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        if done == -2:
            raise TurnStopped
        if done == 0:
            return None
        entry = decode_ledger(record)
        assert isinstance(entry, JoinEntry)
        return JoinedMessages(entry, tuple((int(flat[at]), flat[at + 1]) for at in range(0, len(flat), 2)))

    async def joined(self, claim: Claim) -> list[tuple[int, bytes]]:
        """Read number and raw record of each message that joined the turn so far. Raises
        RedisAway."""
        assert claim.turn is not None
        joined_field, waiting = await self._client.pipeline(
            [("HGET", keys.session(claim.session), "taken"), ("XRANGE", keys.inbox(claim.session), "-", "+")]
        )
        turn, *numbers = map(int, (joined_field or b"0").split())
        records = {int(id.split(b"-")[0]): fields[3] for id, fields in waiting}
        return [(n, records[n]) for n in numbers if n in records] if turn == claim.turn.n else []

    async def superseded(self, claim: Claim) -> bool:
        """Tell whether this turn was told to stop because a newer message replaces it. Raises
        RedisAway."""
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
                listed = keys.chats(channel, effect.listed_for) if effect.listed_for else ""
                chat = [
                    keys.session(session), keys.outbox(session), keys.live(session), keys.history(session), listed,
                ]  # fmt: skip
                limits = self._limits
                return chat, [
                    "say", encode(line), limits.log_days * DAY_MS, chat_id, limits.session_days * DAY_MS,
                    HISTORY_CAP_BYTES, *map(encode, effect.history),
                ]  # fmt: skip
            case SpawnEffect(task=task, per_turn=per_turn):
                names = [
                    keys.child(task.id), keys.children(task.session), keys.SUBAGENTS, keys.queue(JOBS),
                    keys.wake(keys.SUBAGENT_WAKE),
                ]  # fmt: skip
                return names, [
                    "spawn", task.id, encode(task), SCHEMA_VERSION, int(task.wait), task.turn, per_turn, CHILDREN_CAP,
                ]  # fmt: skip

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
        dead letter if given.

        Raises LeaseLost, RedisAway.
        """
        assert claim.turn is not None
        passing = is_ephemeral(claim.session)  # nobody goes on with it, and nothing of it is worth remembering
        history = () if passing else history
        brought = [*map(encode, history), *map(encode, lines)]
        if dead is not None:
            brought += dead.reason.encode(), dead.record
        marks = ("p" if passing else "") + ("d" if dead else "")
        end: list[Value] = [
            claim.member, claim.lease_id, claim.turn.n, encode_live(event), marks, claim.turn.next_due, len(history),
            len(lines),
        ]  # fmt: skip
        done, entries, dropped = await with_retries(lambda: self._commits.send(end, brought), retry_for_s)
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        return Committed(done == 1, entries, dropped)
