"""Finds the primary by asking servers that know it, and notices when another one takes its
place."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from shared.store.client.address import Address, Locator
from shared.store.client.connection import RedisConnection
from shared.tasks import cancel_all, close_all

WATCH_S: Final = 1.0
"""Longest time between two looks. A primary that stands still holds calls up until their time
limit, or until a look finds its successor; when it is resumed, it may answer until the next look on
a connection that was idle meanwhile."""

Place = tuple[str, int]


class Finder(Locator, ABC):
    """Asks `asked`, each over a connection of its own, about once a second. `on_move` is called
    when another server became the primary."""

    def __init__(
        self, address: Address, asked: Sequence[Locator], *, name: str, timeout_s: float, on_move: Callable[[], None]
    ) -> None:
        super().__init__(address)
        self._on_move = on_move
        # Asking them is part of each connection: it takes half of the time for that at most.
        quarter_s = timeout_s / 4
        self._connections = {
            (one.address.host, one.address.port): RedisConnection(
                one, name=name, connect_s=quarter_s, limit_s=quarter_s
            )
            for one in asked
        }
        self._place: Place | None = None
        self._watching: asyncio.Task[None] | None = None

    @abstractmethod
    async def _ask(self, asked: Place) -> Place | None:
        """Return the primary that this one names; None when it is away or knows none."""

    @abstractmethod
    def _elect(self, votes: Counter[Place], asked: int) -> Place:
        """Return the place that counts when no majority of `asked` named one. Raises
        WrongServer."""

    def _watched(self) -> Sequence[Place]:
        """Return whom to ask from time to time."""
        return [*self._connections]

    async def locate(self) -> Address:
        """Return the address of the primary. Raises WrongServer while nobody can tell."""
        host, port = await self._look([*self._connections])
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return self.address.with_login()._replace(host=host, port=port)

    def is_current(self, server: Address) -> bool:
        """Tell whether `server` is the primary that was named last."""
        return (server.host, server.port) == self._place

    async def close(self) -> None:
        """Close the connections to those that are asked."""
        watching = [] if self._watching is None else [self._watching]
        connections = [connection.close for connection in self._connections.values()]
        await close_all(partial(cancel_all, watching), *connections)

    async def _watch(self) -> None:
        while True:
            # Spread out: many processes began together, when the former primary ended.
            await asyncio.sleep(WATCH_S * random.uniform(0.5, 1))
            with contextlib.suppress(OSError):  # nobody knows one: none is promoted yet
                await self._look(self._watched())

    async def _look(self, asked: Sequence[Place]) -> Place:
        before, self._place = self._place, (found := await self._vote(asked))
        if found != before is not None:
            self._on_move()
        return found

    async def _vote(self, asked: Sequence[Place]) -> Place:
        asking = [asyncio.create_task(self._ask(one)) for one in asked]
        votes = Counter[Place]()
        try:
            for answered in asyncio.as_completed(asking):
                place = await answered
                if place is None:
                    continue
                votes[place] += 1
                # As soon as it is certain: one that does not answer would hold up each look.
                if votes[place] * 2 > len(asking):
                    return place
        finally:
            await cancel_all(asking)
        return self._elect(votes, len(asking))
