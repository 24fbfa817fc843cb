"""Links under which everybody who has one may read a chat, as it was when the link was made."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from shared.clock import SYSTEM_CLOCK
from shared.store import keys
from shared.store.client.redis_client import RedisClient

ID_BYTES: Final = 16  # nobody guesses one
DAY_MS: Final = 86_400_000


class Share(msgspec.Struct, frozen=True):
    """A link: its id, the session, the number of its newest line, and until when it counts in
    ms."""

    id: str
    session: str
    seq: int
    until_ms: int


class Shares:
    """The links of chats; each chat has at most one. Every method raises RedisAway."""

    def __init__(self, client: RedisClient, *, days: int) -> None:
        self._client = client
        self.days = days

    async def make(self, session: str, seq: int) -> Share | None:
        """Make a link to the lines up to `seq`, in place of the one before; None if the chat is
        gone."""
        keep_ms = self.days * DAY_MS
        share = Share(secrets.token_urlsafe(ID_BYTES), session, seq, SYSTEM_CLOCK.now_ms() + keep_ms)
        record = f"{share.id} {seq} {share.until_ms}"
        made = await self._client.run(
            "sessions/share",
            session=session,
            link=keys.share(share.id),
            name=session,
            record=record,
            keep_ms=keep_ms,
        )
        return share if made else None

    async def end(self, session: str) -> None:
        """End the link of a chat; whoever has it finds nothing any more."""
        await self._client.run("sessions/share", session=session, link=keys.NO_KEY, name="", record="", keep_ms=0)

    async def of_session(self, session: str) -> Share | None:
        """Return the link of a chat that counts now."""
        return self._parse(session, await self._client.command("HGET", keys.session(session), "share"))

    async def of_id(self, id: str) -> Share | None:
        """Return the link with this id. The session decides: a chat that was erased or forgotten
        since has none any more."""
        session = await self._client.command("GET", keys.share(id))
        share = await self.of_session(session.decode()) if session else None
        return share if share is not None and secrets.compare_digest(share.id.encode(), id.encode()) else None

    def _parse(self, session: str, record: bytes | None) -> Share | None:
        try:
            id, seq, until_ms = (record or b"").decode().split()
            share = Share(id, session, int(seq), int(until_ms))
        except ValueError:
            return None
        # Without `web.share_days` no link counts, also none that was made before.
        return share if self.days and share.until_ms > SYSTEM_CLOCK.now_ms() else None
