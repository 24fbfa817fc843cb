"""Stop requests: they reach a turn on whichever worker it runs."""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import TurnStopped
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from worker.lease.lease_loop import LeaseLoop


class StopListener:
    """Ends work in `loops` (a list that may still grow) when its chat sends a stop."""

    def __init__(self, client: RedisClient, loops: Sequence[LeaseLoop]) -> None:
        self._loops = loops
        self._control = Fanout(client, on_gap=self._renew_now)

    async def subscribe(self) -> None:
        """Subscribe to the control channel."""
        await self._control.subscribe(keys.CONTROL, self._on_stop)

    async def run(self) -> None:
        """Read the control channel until cancelled."""
        await self._control.run()

    def _on_stop(self, data: bytes) -> None:
        """Interrupt the work that `data` names: `<member> <turn>`. A subagent has no turn number of
        its own, so its second word is ignored."""
        member, _, turn = data.decode().rpartition(" ")
        for loop in self._loops:
            for lease in loop.find(member):
                claim = lease.claim
                if claim.subagent is not None or (claim.turn is not None and claim.turn.n == int(turn)):
                    lease.interrupt(TurnStopped())

    async def _renew_now(self) -> None:
        """Renew every lease: the answers carry the stops that were published while we were not
        subscribed."""
        for loop in self._loops:
            await loop.renew_once()
