"""Albums: messages that a person sent as one, where the platform sends each file as its own."""

from __future__ import annotations

from typing import Final

from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS, InboxLimits

WITHIN_MS: Final = 35_000  # a little more than the files of a message may take
KEEP_MS: Final = 600_000
HELD_MS: Final = 60_000


class Albums:
    """Announces parts of albums, so that the turn of the first one waits for them. Ingest, which
    makes each part durable by itself, ends the wait. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._days = InboxLimits().seen_days

    async def expect(self, part: InboundMessage, album: str) -> list[bytes] | None:
        """Announce a part whose file is about to be fetched. Return the parts that are held, in
        order; they may have been accepted since. None if this one was accepted before."""
        session = part.session
        status, held = await self._client.run(
            "albums/expect",
            session=session,
            queue=TURNS,
            held=_held_key(part, album),
            album=album,
            dedupe_id=f"{part.chat_id}/{part.id}",
            seen=keys.seen(part.channel),
            days=self._days,
            member=keys.turn(session),
            within_ms=WITHIN_MS,
            keep_ms=KEEP_MS,
        )
        return None if status == b"known" else list(held)

    async def hold(self, part: InboundMessage, album: str, record: bytes) -> bool:
        """Keep a part that does not address the bot, as bytes of the caller's own, for a minute.
        Return False if another part has addressed it: then this one is not kept."""
        known = await self._client.run(
            "albums/hold",
            session=part.session,
            held=_held_key(part, album),
            album=album,
            record=record,
            keep_ms=HELD_MS,
        )
        return not known


def _held_key(part: InboundMessage, album: str) -> str:
    return keys.album_held(f"{part.session}/{album}")
