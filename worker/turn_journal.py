"""A turn's border with the fleet: its ledger in the store, and the moments at which its lease is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from shared.crash_points import crash_point
from shared.errors import TurnReleased
from shared.messages.effects import Effect, Say
from shared.messages.transcript import AssistantEntry, EffectEntry, IntentEntry, LedgerEntry, ToolEntry
from shared.metrics import MESSAGES_JOINED
from shared.store.queue import Claim
from shared.store.turns import Turns
from worker.agent.followups import Said
from worker.agent.turn import AgentResult
from worker.conversation import Joined, read_joined
from worker.lease import Lease

STORE_PATIENCE_S: Final = 3600.0
"""While Redis is away nobody else can take the turn, so its writes wait; the fence in each decides afterwards."""

_KINDS: Final = {AssistantEntry: "reply", IntentEntry: "intent", ToolEntry: "result", EffectEntry: "effect"}


class Ledgers(Protocol):
    """Where the steps of a piece of work are written: `Turns`, `Children`."""

    async def append(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None: ...


class LeaseJournal:
    """The agent's border with the fleet, for one lease. `entries` is the ledger, of earlier attempts too; it grows
    here."""

    def __init__(self, lease: Lease, ledgers: Ledgers, entries: Sequence[LedgerEntry]) -> None:
        self.entries = list(entries)
        self._lease = lease
        self._ledgers = ledgers
        self._writing = asyncio.Lock()

    @property
    def lease(self) -> Lease:
        """What the turn is held by."""
        return self._lease

    async def checkpoint(self) -> None:
        """Wait while the lease is in doubt; raise what ends the turn here (a drain ends it at this border)."""
        await self._lease.allow()
        if self._lease.draining:
            raise TurnReleased("drain")

    async def append(self, entry: LedgerEntry, effect: Effect | None = None) -> None:
        """Write the next step, and carry out its effect with it."""
        await self._lease.allow()
        kind = _KINDS[type(entry)]
        async with self._writing:
            crash_point(f"before_ledger_{kind}")
            step = len(self.entries) + 1
            await self._ledgers.append(self._lease.claim, step, entry, effect, retry_for_s=STORE_PATIENCE_S)
            crash_point(f"after_ledger_{kind}")
            self.entries.append(entry)

    async def confirm(self) -> None:
        """Renew the lease before something that cannot be taken back."""
        await self._lease.confirm()


class TurnJournal(LeaseJournal):
    """That of a turn. `joined` is what joined it; it grows here, too."""

    def __init__(
        self, lease: Lease, turns: Turns, entries: Sequence[LedgerEntry], joined: dict[int, Joined] | None = None
    ) -> None:
        super().__init__(lease, turns, entries)
        self.joined = {} if joined is None else joined
        self._turns = turns
        assert lease.claim.turn is not None
        self._work = lease.claim.turn

    def spoken(self) -> bool:
        """Whether the message tool said something in the turn's own chat, in this attempt or an earlier one."""
        own = self._lease.claim.session
        return any(isinstance(one, EffectEntry) and (one.kind, one.to) == (Say.kind, own) for one in self.entries)

    def unsaid(self, result: AgentResult) -> str:
        """The final text; `""` when the message tool has said it. Why a turn is not finished is told all the same."""
        return "" if self.spoken() and result.outcome in ("done", "empty") else result.content

    @property
    def open(self) -> bool:
        """Whether messages that come while the turn runs may join it."""
        return self._work.steers

    async def take(self) -> Sequence[Said]:
        """The messages that join the turn now (see `Followups`)."""
        at_start = not self.entries
        if not (self._work.steers or (at_start and self._work.joins_at_start)):
            return ()
        await self._lease.allow()
        async with self._writing:
            crash_point("before_take")
            step = len(self.entries) + 1
            taken = await self._turns.take(self._lease.claim, step, at_start=at_start, retry_for_s=STORE_PATIENCE_S)
            crash_point("after_take")
            if taken is None:
                return ()
            self.entries.append(taken.entry)
            new = {number: read_joined(self._lease.claim, number, record) for number, record in taken.records}
            self.joined.update(new)
            MESSAGES_JOINED.inc(len(new))
            return [joined.said for joined in new.values()]
