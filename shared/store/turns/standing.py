"""The standing approvals of chats, as a worker reads them before a call that would be asked about."""

from __future__ import annotations

from shared.messages.standing import StandingApproval, parse_standing
from shared.store import keys
from shared.store.client.redis_client import RedisClient


class StandingApprovals:
    """Reads standing approvals, each time from the store: one that was taken back counts no more."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def of_session(self, session: str) -> tuple[StandingApproval, ...]:
        """Return the standing approvals of a session. Raises RedisAway."""
        return parse_standing(await self._client.command("HGET", keys.session(session), "standing"))
