"""Finds the primary that a majority of the configured Sentinels names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from shared.errors import ReplyError
from shared.store.client.address import Address, Locator, WrongServer
from shared.store.client.finder import Finder, Place

FRESH_MS: Final = 2000
"""A primary that answered a Sentinel within this time is seen by it; it is asked every second."""


class Sentinels(Finder):
    """The Sentinels of an address. Not the first answer counts but that of a majority: one Sentinel
    may be cut off together with a former primary, and still name that."""

    def __init__(self, address: Address, *, name: str, timeout_s: float, on_move: Callable[[], None]) -> None:
        asked = [Locator(one) for one in address.sentinels]
        super().__init__(address, asked, name=name, timeout_s=timeout_s, on_move=on_move)

    async def sees_primary(self) -> bool:
        """Tell whether a majority of the Sentinels had an answer from the primary a moment ago. To
        name it is not enough: they do until it has been away for long, and then promote another."""
        answers = await asyncio.gather(*map(self._sees, self._connections))
        return sum(answers) * 2 > len(answers)

    async def _ask(self, asked: Place) -> Place | None:
        try:
            command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service)
            host, port = await self._connections[asked].call(command)
            return host.decode(), int(port)
        except (OSError, ReplyError, TypeError, ValueError):
            return None  # away, or it does not know the service

    def _elect(self, votes: Counter[Place], asked: int) -> Place:
        most = max(votes.values(), default=0)
        raise WrongServer(
            f"{most} of {asked} Sentinels name the same primary of {self.address.service!r}, not a majority"
        )

    async def _sees(self, asked: Place) -> bool:
        try:
            flat: list[bytes] = await self._connections[asked].call(("SENTINEL", "MASTER", self.address.service))
            facts = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
            place = facts["ip"], int(facts["port"])
            is_up = facts["flags"] == "master" and int(facts["last-ok-ping-reply"]) < FRESH_MS
        except (OSError, ReplyError, AttributeError, KeyError, TypeError, ValueError):
            return False
        return is_up and place == self._place
