"""A turn's border with the fleet: its ledger in the store, and the moments at which its lease is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from shared.crash_points import crash_point
from shared.errors import TurnReleased
from shared.messages.effects import Effect
from shared.messages.transcript import AssistantEntry, EffectEntry, IntentEntry, LedgerEntry, ToolEntry
from shared.store.turns import Turns
from worker.lease import Lease

STORE_PATIENCE_S: Final = 3600.0
"""While Redis is away nobody else can take the turn, so its writes wait; the fence in each decides afterwards."""

_KINDS: Final = {AssistantEntry: "reply", IntentEntry: "intent", ToolEntry: "result", EffectEntry: "effect"}


class TurnJournal:
    """The agent's border with the fleet, for one lease. `entries` is the ledger, of earlier attempts too."""

    def __init__(self, lease: Lease, turns: Turns, entries: Sequence[LedgerEntry]) -> None:
        self.entries = list(entries)
        self._lease = lease
        self._turns = turns
        self._writing = asyncio.Lock()

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
            await self._turns.append(self._lease.claim, step, entry, effect, retry_for_s=STORE_PATIENCE_S)
            crash_point(f"after_ledger_{kind}")
            self.entries.append(entry)

    async def confirm(self) -> None:
        """Renew the lease before something that cannot be taken back."""
        await self._lease.confirm()
