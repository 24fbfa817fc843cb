"""A worker as release 1 has it: its scripts take the turns, its Structs read them, and its scripts end them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from shared.ids import nonce
from shared.messages.transcript import UserEntry
from shared.store.client.redis_client import RedisClient
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES
from tests.helpers.build import reply
from tests.records.release_1 import shapes, store

LEASE_MS: Final = 15_000
LATER_MS: Final = 1000
PAUSE_S: Final = 0.02


class OldWorker:
    """Answers what is due. What it cannot read it leaves to a newer one: `left`."""

    def __init__(self, client: RedisClient) -> None:
        self.answered: list[tuple[str, int]] = []
        self.resumed: dict[str, int] = {}
        """How many steps of somebody else it went on from, by session."""
        self.left: set[str] = set()
        self._client = client
        self._owner = nonce()

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            if not await self.run_once():
                await asyncio.sleep(PAUSE_S)

    async def run_once(self) -> int:
        """Take one turn, if there is one, and end it."""
        rows = await store.acquire(self._client, self._owner, LEASE_MS)
        for row in rows:
            await self._turn(row)
        return len(rows)

    async def _turn(self, row: list[Any]) -> None:
        session, lease = row[0].decode().removeprefix("turn:"), f"{self._owner}:{row[1].decode()}"
        n, record, ledger, history = int(row[4]), row[5], row[11], row[12]
        try:
            message = shapes.read("inbound", record)
            steps = [shapes.read("ledger", step) for step in ledger]
            for entry in history:
                shapes.read("transcript", entry)
        except msgspec.ValidationError:
            self.left.add(session)
            keys = [store.QUEUE, store.LEASES, store.WAKE, store.own("session", session)]
            await self._client.run(store.script("release"), keys, [f"turn:{session}", lease, LATER_MS, ""])
            return
        if steps:
            self.resumed[session] = len(steps)
        entry = UserEntry(content=message.content, turn=n)
        line = msgspec.structs.replace(reply(f"release 1 read: {message.content}", n), in_reply_to=(message.id,))
        assert await store.commit(self._client, session, lease, n, HISTORY_CAP_BYTES, [entry], line) == 1
        self.answered.append((session, n))
