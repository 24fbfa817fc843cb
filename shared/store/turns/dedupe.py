"""Messages that were seen before: whether one was, and the newest form of an edited one."""

from __future__ import annotations

from shared.clock import SYSTEM_CLOCK, Clock
from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import DAY_MS, InboxLimits


class SeenMessages:
    """Reads the ids that ingest stores, which are kept for some days. Methods raise RedisAway."""

    def __init__(self, client: RedisClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._days = InboxLimits().seen_days

    async def knows(self, message: InboundMessage) -> bool:
        """Tell whether a message was seen before. A False may be wrong; only ingest decides for
        certain."""
        today = self._clock.now_ms() // DAY_MS
        prefix, id = keys.seen(message.channel), f"{message.chat_id}/{message.id}"
        days = range(today - self._days, today + 2)  # the server's day may be the next one already
        found = await self._client.pipeline([("HGET", f"{prefix}{day}", id) for day in days])
        return any(found)

    async def new_form(self, message: InboundMessage, of: str) -> str:
        """Record a new form of the message `of`, and return the id of its form before this one.
        The same call again returns the same id."""
        return await self._ask(message, of, message.id)

    async def newest_form(self, message: InboundMessage) -> str:
        """Return the id of the newest form of a message; its own id when it was never edited."""
        return await self._ask(message, message.id, "")

    async def _ask(self, message: InboundMessage, first: str, form: str) -> str:
        newest: bytes = await self._client.run(
            "turns/dedupe_form", [], [keys.seen(message.channel), self._days, f"{message.chat_id}/{first}", first, form]
        )
        return newest.decode()
