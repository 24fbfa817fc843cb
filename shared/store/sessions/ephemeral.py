"""The end of ephemeral sessions, which belong to one request over HTTP."""

from __future__ import annotations

from shared.messages.live import TurnEvent, encode_live
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.agenda import Agenda
from shared.store.turns.inbox import TURNS


class EphemeralSessions:
    """Ends ephemeral sessions. Their data in Redis is deleted at once; a worker that reads
    `agenda` deletes their files. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.agenda = Agenda(client, keys.EPHEMERAL)

    async def end(self, session: str) -> None:
        """Delete a session. A running turn is told to stop and can write nothing more."""
        # Due in any case: if this process dies now, a worker deletes the rest.
        await self._client.command("ZADD", keys.EPHEMERAL, 0, session)  # due, whatever of this was done
        await self.erase(session)

    async def erase(self, session: str) -> None:
        """Delete a session that was read from the agenda."""
        own = f"chat:{session}"
        await self._client.run(
            "sessions/erase",
            [
                keys.inbox(session), keys.queue(TURNS), keys.leases(TURNS), keys.live(session), keys.IDLE, keys.REWORK,
                keys.session(session), keys.inbox(session), keys.ledger(session), keys.history(session),
                keys.archive(session), keys.outbox(session), keys.schedules(session), keys.memory(own),
                keys.memlog(own),
            ],
            [session, keys.turn(session), own, keys.CONTROL, 0, encode_live(TurnEvent(0, "stopped"))],
        )  # fmt: skip
