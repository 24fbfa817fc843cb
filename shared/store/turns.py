"""Guarded writes of a running turn: the ledger on the way, the commit at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.errors import LeaseLost, TurnLimited
from shared.messages.codec import encode
from shared.messages.effects import Effect, Say
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine
from shared.messages.transcript import LedgerEntry, TranscriptEntry
from shared.store import keys
from shared.store.client import RedisClient, Value
from shared.store.inbox import DAY_MS, TURNS, InboxLimits
from shared.store.queue import Claim
from shared.store.scripts import load

LEDGER_CAP_BYTES: Final = 2 * 1024 * 1024
HISTORY_CAP_BYTES: Final = 2 * 1024 * 1024


class DeadLetter(msgspec.Struct, frozen=True):
    """Why a message gets no answer, and its raw record."""

    reason: str
    record: bytes


class Committed(msgspec.Struct, frozen=True):
    """What a commit did: whether this call was the one, how many entries the conversation has now, and how many of the
    oldest were dropped because it was over its cap."""

    first: bool
    entries: int = 0
    dropped: int = 0


class Turns:
    """What a worker writes for the turns it holds. Every write names its lease and is refused with LeaseLost."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self._ledger, self._commit = load("ledger"), load("commit")

    async def append(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        """Store step number `step` (from 1), and carry `effect` out with it. The same step again changes nothing.

        Raises LeaseLost, RedisAway, and TurnLimited when the ledger has 2 MB.
        """
        effect_keys, effect_args = self._effect(effect)
        done = await self._client.run(
            self._ledger,
            [
                keys.leases(TURNS), keys.session(claim.session), keys.ledger(claim.session), keys.queue(TURNS),
                keys.wake(TURNS), *effect_keys,
            ],
            [claim.member, claim.lease, step, encode(entry), LEDGER_CAP_BYTES, *effect_args],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        if done == -2:
            raise TurnLimited("ledger", f"this turn wrote more than {LEDGER_CAP_BYTES // 1024 // 1024} MB of results")

    def _effect(self, effect: Effect | None) -> tuple[list[str], list[Value]]:
        """What ledger.lua takes for it."""
        match effect:
            case None:
                return [], [""]
            case Say(session=session, line=line):
                chat = [keys.session(session), keys.outbox(session), keys.live(session)]
                return chat, ["say", encode(line), self._limits.log_days * DAY_MS]

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
        """End the turn, all at once: history, lines for the chat, inbox, ledger, lease, and a dead letter if given.

        Raises LeaseLost, RedisAway.
        """
        assert claim.turn is not None
        session, limits = claim.session, self._limits
        done, entries, dropped = await self._client.run(
            self._commit,
            [
                keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS), keys.session(session), keys.inbox(session),
                keys.ledger(session), keys.history(session), keys.outbox(session), keys.live(session), keys.DEAD,
                keys.IDLE,
            ],
            [
                claim.member, claim.lease, claim.turn.n, HISTORY_CAP_BYTES, limits.session_days * DAY_MS,
                limits.log_days * DAY_MS, dead.record if dead else b"", dead.reason if dead else "",
                encode_live(event), limits.idle_ms, len(history), *map(encode, history), *map(encode, lines),
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        return Committed(done == 1, entries, dropped)
