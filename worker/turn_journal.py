"""A turn's border with the fleet: its ledger in the store, and the moments at which its lease is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.errors import TurnReleased
from shared.messages.transcript import LedgerEntry
from shared.store.turns import Turns
from worker.lease import Lease

STORE_PATIENCE_S: Final = 3600.0
"""While Redis is away nobody else can take the turn, so its writes wait; the fence in each decides afterwards."""


class TurnJournal:
    """The agent's border with the fleet, for one lease. `entries` is the ledger, of earlier attempts too."""

    def __init__(self, lease: Lease, turns: Turns, entries: Sequence[LedgerEntry]) -> None:
        self.entries = list(entries)
        self._lease = lease
        self._turns = turns

    async def checkpoint(self) -> None:
        """Wait while the lease is in doubt; raise what ends the turn here (a drain ends it at this border)."""
        await self._lease.allow()
        if self._lease.draining:
            raise TurnReleased("drain")

    async def append(self, entry: LedgerEntry) -> None:
        """Write the next step."""
        await self._lease.allow()
        await self._turns.append(self._lease.claim, len(self.entries) + 1, entry, retry_for_s=STORE_PATIENCE_S)
        self.entries.append(entry)

    async def confirm(self) -> None:
        """Renew the lease before something that cannot be taken back."""
        await self._lease.confirm()
