"""Hearing that a person said stop, whichever worker their turn runs on."""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import TurnStopped
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from worker.lease.lease_loop import LeaseLoop


class StopListener:
    """Ends what runs in `loops`, a list that may still grow, when its chat says so."""

    def __init__(self, client: RedisClient, loops: Sequence[LeaseLoop]) -> None:
        self._loops = loops
        self._control = Fanout(client, on_gap=self._renew_now)

    async def subscribe(self) -> None:
        """Ask to be told."""
        await self._control.subscribe(keys.CONTROL, self._on_stop)

    async def run(self) -> None:
        """Hear, until cancelled."""
        await self._control.run()

    def _on_stop(self, data: bytes) -> None:
        """`<member> <turn>`; what stands behind a subagent does not matter."""
        member, _, turn = data.decode().rpartition(" ")
        for loop in self._loops:
            for lease in loop.find(member):
                claim = lease.claim
                if claim.subagent is not None or (claim.turn is not None and claim.turn.n == int(turn)):
                    lease.interrupt(TurnStopped())

    async def _renew_now(self) -> None:
        """What was said on the control channel while it was away is in the answers to a renewal."""
        for loop in self._loops:
            await loop.renew_once()
