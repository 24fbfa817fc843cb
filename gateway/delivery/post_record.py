"""What Redis is told of the posts of a channel: ahead of each, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

from gateway.delivery.chat_lease import Hold
from gateway.delivery.post_builder import Going
from gateway.platform.protocol import NotDelivered, Unclear
from shared.clock import Clock
from shared.ids import log_id
from shared.log import logger
from shared.metrics import DELIVERIES, DELIVERY_UNKNOWN
from shared.process.crash_points import crash_point
from shared.store.delivery.deliveries import AfterUnclear, Deliveries, RateKey, Wait

SHORT_S: Final = 1.0
"""A wait for the rates up to here is made holding the chat; for a longer one it is given back."""

KEEP_TELLING_S: Final = 30.0
"""How long Redis is told again what became of a post: otherwise somebody would send it again."""

Outcome = Literal["there", "given up", "gone"]
"""The platform has the post; the line is given up, and the chat is still ours; the chat is not ours
any more."""

log = logger("delivery")


class PostRecord:
    """The records of one channel. Every method raises RedisAway."""

    def __init__(self, channel: str, deliveries: Deliveries, *, draining: asyncio.Event, clock: Clock) -> None:
        self._channel = channel
        self._deliveries = deliveries
        self._draining = draining
        self._clock = clock

    async def ahead(
        self, hold: Hold, going: Going, part: int, rates: Sequence[RateKey], *, offers: AfterUnclear
    ) -> bool:
        """Say that a post is about to be sent, and wait for the rates if they want it; False = the
        chat is not ours."""
        while True:
            asked_at = self._clock.monotonic()
            cleared = await self._deliveries.sending(hold.delivery, going.seq, part, rates)
            if cleared is None:
                return False
            hold.held_from(asked_at)
            if not isinstance(cleared, Wait):
                if cleared.unclear and offers == "nothing":
                    DELIVERY_UNKNOWN.labels(self._channel).inc()
                    log.warning("post sent again", **self._named(hold), line=going.seq)
                return True
            if cleared.seconds > SHORT_S or self._draining.is_set():
                await self.give_back(hold, cleared.seconds)
                return False
            try:
                async with asyncio.timeout(cleared.seconds):
                    await self._draining.wait()
            except TimeoutError:
                pass

    async def there(self, hold: Hold, going: Going, part: int, id: str) -> Outcome:
        """The platform has a post."""
        last, told_at = part == going.parts.count - 1, self._clock.monotonic()
        with hold.telling():
            ours = await self._deliveries.sent(
                hold.delivery, going.seq, part, last=last, id=id, retry_for_s=KEEP_TELLING_S
            )
            hold.in_doubt = False
            if not ours:
                return "gone"
            hold.held_from(told_at)
            if not hold.safe_s:  # Redis was away for long
                told_at = self._clock.monotonic()
                if await self._deliveries.renew([hold.delivery]):
                    return "gone"
                hold.held_from(told_at)
        crash_point("after_sent")
        return "there"

    async def nothing(self, hold: Hold, going: Going) -> bool:
        """A line has nothing to show; whether the chat is still ours."""
        self.count("nothing")
        return await self._deliveries.sent(hold.delivery, going.seq, 0, last=True, retry_for_s=KEEP_TELLING_S)

    async def later(self, hold: Hold, delay_s: float, why: NotDelivered) -> Outcome:
        """A post was not taken, or nobody knows; somebody tries again after a while."""
        log.info("post put off", **self._named(hold), reason=why.reason, delay_s=round(delay_s, 1))
        unclear = isinstance(why, Unclear)
        with hold.telling():
            await self._deliveries.later(hold.delivery, delay_s, unclear=unclear, retry_for_s=KEEP_TELLING_S)
            hold.in_doubt = False
        return "gone"

    async def give_back(self, hold: Hold, delay_s: float = 0.0) -> None:
        """Let somebody else go on, after a while or at once; it is no try."""
        await self._deliveries.later(hold.delivery, delay_s, unclear=False, counts=False)

    async def give_up(
        self, hold: Hold, going: Going, reason: str, *, drop_all: bool = False, too_late: bool = False
    ) -> Outcome:
        """A line is not delivered; with `drop_all` none that waits is, and the chat is closed."""
        log.warning("chat closed" if drop_all else "line given up", **self._named(hold), line=going.seq, reason=reason)
        with hold.telling():
            ours = await self._deliveries.refused(
                hold.delivery, going.seq, reason, drop_all=drop_all, too_late=too_late, retry_for_s=KEEP_TELLING_S
            )
            hold.in_doubt = False
        self.count("dropped" if drop_all else "dead")
        return "given up" if ours else "gone"

    def count(self, outcome: str) -> None:
        """One more line left the outbox."""
        DELIVERIES.labels(self._channel, outcome).inc()

    def _named(self, hold: Hold) -> dict[str, Any]:
        return {"channel": self._channel, "session": log_id(hold.session)}
