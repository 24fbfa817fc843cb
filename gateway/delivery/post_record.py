"""What Redis is told of the posts of a channel: ahead of each, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.post_builder import OutgoingLine
from gateway.platform.protocol import MaybeSent, NotDelivered
from shared.clock import Clock
from shared.ids import log_id
from shared.log import logger
from shared.metrics import DELIVERIES, DELIVERY_UNKNOWN
from shared.process.crash_points import crash_point
from shared.store.delivery.deliveries import DeliveryQueue, RateKey, ResendGuard, Wait
from shared.tasks import event_within

SHORT_S: Final = 1.0
"""A wait for the rates up to here is made holding the chat; for a longer one it is given back."""

REPORT_RETRY_S: Final = 30.0
"""How long Redis is told again what became of a post: otherwise somebody would send it again."""

Outcome = Literal["there", "given up", "gone"]
"""The platform has the post; the line is given up, and the chat is still ours; the chat is not ours
any more."""

log = logger("delivery")


class PostRecord:
    """The records of one channel. Every method raises RedisAway."""

    def __init__(self, channel: str, deliveries: DeliveryQueue, *, draining: asyncio.Event, clock: Clock) -> None:
        self._channel = channel
        self._deliveries = deliveries
        self._draining = draining
        self._clock = clock

    async def announce(
        self, lease: ChatLease, outgoing: OutgoingLine, part: int, rates: Sequence[RateKey], *, guard: ResendGuard
    ) -> bool:
        """Say that a post is about to be sent, and wait for the rates if they want it; False = the
        chat is not ours."""
        while True:
            asked_at = self._clock.monotonic()
            cleared = await self._deliveries.begin_post(lease.chat, outgoing.seq, part, rates)
            if cleared is None:
                return False
            lease.renewed(asked_at)
            if not isinstance(cleared, Wait):
                if cleared.unclear and guard == "nothing":
                    DELIVERY_UNKNOWN.labels(self._channel).inc()
                    log.warning("post sent again", **self._log_fields(lease), line=outgoing.seq)
                return True
            if cleared.seconds > SHORT_S or self._draining.is_set():
                await self.give_back(lease, cleared.seconds)
                return False
            await event_within(self._draining, cleared.seconds)

    async def confirm(self, lease: ChatLease, outgoing: OutgoingLine, part: int, id: str) -> Outcome:
        """The platform has a post."""
        last, asked_at = part == outgoing.parts.count - 1, self._clock.monotonic()
        with lease.while_reporting():
            ours = await self._deliveries.finish_post(
                lease.chat, outgoing.seq, part, last=last, id=id, retry_for_s=REPORT_RETRY_S
            )
            lease.in_doubt = False
            if not ours:
                return "gone"
            lease.renewed(asked_at)
            if not lease.safe_s:  # Redis was away for long
                asked_at = self._clock.monotonic()
                if await self._deliveries.renew([lease.chat]):
                    return "gone"
                lease.renewed(asked_at)
        crash_point("after_sent")
        return "there"

    async def skip(self, lease: ChatLease, outgoing: OutgoingLine) -> bool:
        """A line has nothing to show; whether the chat is still ours."""
        self.count("nothing")
        return await self._deliveries.finish_post(lease.chat, outgoing.seq, 0, last=True, retry_for_s=REPORT_RETRY_S)

    async def put_off(self, lease: ChatLease, delay_s: float, why: NotDelivered) -> Outcome:
        """A post was not taken, or nobody knows; somebody tries again after a while."""
        log.info("post put off", **self._log_fields(lease), reason=why.reason, delay_s=round(delay_s, 1))
        unclear = isinstance(why, MaybeSent)
        with lease.while_reporting():
            await self._deliveries.requeue(lease.chat, delay_s, unclear=unclear, retry_for_s=REPORT_RETRY_S)
            lease.in_doubt = False
        return "gone"

    async def give_back(self, lease: ChatLease, delay_s: float = 0.0) -> None:
        """Let somebody else go on, after a while or at once; it is no try."""
        await self._deliveries.requeue(lease.chat, delay_s, unclear=False, counts=False)

    async def give_up(
        self, lease: ChatLease, outgoing: OutgoingLine, reason: str, *, drop_all: bool = False, too_late: bool = False
    ) -> Outcome:
        """A line is not delivered; with `drop_all` none that waits is, and the chat is closed."""
        log.warning(
            "chat closed" if drop_all else "line given up", **self._log_fields(lease), line=outgoing.seq, reason=reason
        )
        with lease.while_reporting():
            ours = await self._deliveries.give_up_line(
                lease.chat, outgoing.seq, reason, drop_all=drop_all, too_late=too_late, retry_for_s=REPORT_RETRY_S
            )
            lease.in_doubt = False
        self.count("dropped" if drop_all else "dead")
        return "given up" if ours else "gone"

    def count(self, outcome: str) -> None:
        """One more line left the outbox."""
        DELIVERIES.labels(self._channel, outcome).inc()

    def _log_fields(self, lease: ChatLease) -> dict[str, Any]:
        return {"channel": self._channel, "session": log_id(lease.session)}
