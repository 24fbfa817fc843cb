"""The record in Redis of the posts of one line: written before each is sent, and with its
outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.context import DeliveryContext
from gateway.delivery.line_posts import OutgoingLine
from gateway.platform.protocol import MaybeSent, NotDelivered
from shared.crash_points import crash_point
from shared.ids import log_id
from shared.log import logger
from shared.metrics import DELIVERIES, DELIVERY_UNKNOWN
from shared.store.delivery.deliveries import RateKey, ResendGuard, Wait
from shared.tasks import event_within

SHORT_S: Final = 1.0
"""A wait for the rates up to this long is spent holding the chat; for a longer one the chat is
given back."""

REPORT_RETRY_S: Final = 30.0
"""Seconds in which writing an outcome is tried: if it is lost, another gateway sends the post
again."""

Outcome = Literal["sent", "given up", "gone"]
"""`sent`: the platform has the post. `given up`: the line is a dead letter and the chat is still
ours. `gone`: the chat is not ours any more."""

log = logger("delivery")


class PostRecord:
    """The record of one line. Every method raises RedisAway."""

    def __init__(self, context: DeliveryContext, lease: ChatLease, outgoing: OutgoingLine) -> None:
        self._channel = context.platform.name
        self._deliveries = context.deliveries
        self._draining = context.draining
        self._clock = context.clock
        self._lease = lease
        self._outgoing = outgoing

    async def announce(self, part: int, rates: Sequence[RateKey], *, guard: ResendGuard) -> bool:
        """Record the send intent and wait for the rate limiter if needed. False: we no longer hold
        the chat."""
        while True:
            asked_at = self._clock.monotonic()
            cleared = await self._deliveries.begin_post(self._lease.chat, self._outgoing.seq, part, rates)
            if cleared is None:
                return False
            # The lease runs from when the call was made: Redis may have counted from then.
            self._lease.renewed(asked_at)
            if not isinstance(cleared, Wait):
                if cleared.unclear and guard == "nothing":
                    DELIVERY_UNKNOWN.labels(self._channel).inc()
                    log.warning("post sent again", **self._log_fields(), line=self._outgoing.seq)
                return True
            if cleared.seconds > SHORT_S or self._draining.is_set():
                await self.give_back(cleared.seconds)
                return False
            await event_within(self._draining, cleared.seconds)

    async def confirm(self, part: int, id: str) -> Outcome:
        """Record that the platform has a post, as `id`."""
        last, asked_at = part == self._outgoing.parts.count - 1, self._clock.monotonic()
        with self._lease.while_reporting():
            ours = await self._deliveries.finish_post(
                self._lease.chat, self._outgoing.seq, part, last=last, id=id, retry_for_s=REPORT_RETRY_S
            )
            self._lease.in_doubt = False
            if not ours:
                return "gone"
            self._lease.renewed(asked_at)
            # The report may have been retried past the fence. The store still took it, but the chat
            # may be another gateway's by now: only a renewal tells.
            if not self._lease.safe_s:
                asked_at = self._clock.monotonic()
                if await self._deliveries.renew([self._lease.chat]):
                    return "gone"
                self._lease.renewed(asked_at)
        crash_point("after_sent")
        return "sent"

    async def skip(self) -> bool:
        """Record that the line has nothing to show; return whether the chat is still ours."""
        self.count("nothing")
        return await self._deliveries.finish_post(
            self._lease.chat, self._outgoing.seq, 0, last=True, retry_for_s=REPORT_RETRY_S
        )

    async def put_off(self, delay_s: float, why: NotDelivered) -> Outcome:
        """Give the chat back after a failed or unclear try; it is due again after `delay_s`."""
        log.info("post put off", **self._log_fields(), reason=why.reason, delay_s=round(delay_s, 1))
        unclear = isinstance(why, MaybeSent)
        with self._lease.while_reporting():
            await self._deliveries.requeue(self._lease.chat, delay_s, unclear=unclear, retry_for_s=REPORT_RETRY_S)
            self._lease.in_doubt = False
        return "gone"

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Give the chat back without counting a try."""
        await self._deliveries.requeue(self._lease.chat, delay_s, unclear=False, counts=False)

    async def give_up(self, reason: str, *, drop_all: bool = False, too_late: bool = False) -> Outcome:
        """Dead-letter the line; with `drop_all` every waiting line, and close the chat."""
        event = "chat closed" if drop_all else "line given up"
        log.warning(event, **self._log_fields(), line=self._outgoing.seq, reason=reason)
        with self._lease.while_reporting():
            ours = await self._deliveries.give_up_line(
                self._lease.chat,
                self._outgoing.seq,
                reason,
                drop_all=drop_all,
                too_late=too_late,
                retry_for_s=REPORT_RETRY_S,
            )
            self._lease.in_doubt = False
        self.count("dropped" if drop_all else "dead")
        return "given up" if ours else "gone"

    def count(self, outcome: str) -> None:
        """Count one more line that left the outbox."""
        DELIVERIES.labels(self._channel, outcome).inc()

    def _log_fields(self) -> dict[str, Any]:
        return {"channel": self._channel, "session": log_id(self._lease.session)}
