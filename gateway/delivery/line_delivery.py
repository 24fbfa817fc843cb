"""The delivery of one line of a chat: post by post, in order, each recorded in Redis before it is
sent and with its outcome; and what to do about each failure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.line_posts import OutgoingLine, build_post
from gateway.delivery.platform_calls import ChannelFault, DeliveryContext
from gateway.delivery.streamed_message import StreamedMessage
from gateway.platform.protocol import (
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Post,
    PostRefused,
    Throttled,
)
from shared.crash_points import crash_point
from shared.ids import log_id
from shared.log import logger
from shared.messages.outbound import OutboundMessage
from shared.metrics import DELIVERIES, DELIVERY_NOT_FOUND, DELIVERY_SECONDS, DELIVERY_UNKNOWN
from shared.store.delivery.deliveries import DeliveryState, RateKey, ResendGuard, Wait
from shared.tasks import event_within

FIRST_S: Final = 1.0
CAP_S: Final = 60.0
UNCLEAR_CAP_S: Final = 600.0
"""The longest waits between two tries, the last where each may show the post once more."""

LEAST_S: Final = 0.5  # the shortest wait, for platforms that say "too many, again in 0 s"
FAULTS: Final = 5  # a line is given up when the channel's own code has broken over it this often
SHORT_S: Final = 1.0
"""A wait for the rates up to this long is spent holding the chat; else it is given back."""

REPORT_RETRY_S: Final = 30.0
"""Seconds for writing an outcome: if it is lost, another gateway sends the post again."""

Outcome = Literal["sent", "given up", "gone"]
"""`sent`: the platform has the post. `given up`: the line is a dead letter and the chat is still
ours. `gone`: the chat is not ours any more."""

log = logger("delivery")


class LineDelivery:
    """Sends one line of a leased chat. Raises RedisAway, and LeaseLost for a lease in doubt."""

    def __init__(
        self,
        context: DeliveryContext,
        lease: ChatLease,
        outgoing: OutgoingLine,
        state: DeliveryState,
        streamed: StreamedMessage,
    ) -> None:
        self._context = context
        self._platform = context.platform
        self._deliveries = context.deliveries
        self._lease = lease
        self._outgoing = outgoing
        self._seq = outgoing.entry.seq
        self._state = state
        self._streamed = streamed

    async def run(self) -> bool:
        """Send the line from post `state.part` on; return whether the chat is still ours."""
        ours = await self._deliver()
        if ours:
            self._streamed.line_finished(self._outgoing.entry.line)
        return ours

    async def _deliver(self) -> bool:
        entry = self._outgoing.entry
        count = self._outgoing.parts.count
        if entry.age_s > self._platform.abilities.give_up_after_s:
            return await self._give_up("it has waited too long", too_late=True) != "gone"
        if not count:
            self._count("nothing")
            return await self._deliveries.finish_post(
                self._lease.chat, self._seq, 0, last=True, retry_for_s=REPORT_RETRY_S
            )
        for part in range(self._state.part, count):
            # Only the first post can be in doubt: what follows it was never tried.
            unclear = self._state.unclear and part == self._state.part
            outcome = await self._send_post(part, unclear=unclear)
            if outcome != "sent":
                return outcome == "given up"
        self._count("sent")
        if isinstance(entry.line, OutboundMessage) and (at := entry.line.at):
            seconds = (self._context.clock.now_ms() - at) / 1000
            DELIVERY_SECONDS.labels(self._platform.name).observe(max(0.0, seconds))
        return True

    async def _send_post(self, part: int, *, unclear: bool) -> Outcome:
        """Send one post, in all ways there are. `unclear`: an earlier try may have shown it."""
        context = self._context
        outgoing = self._outgoing
        as_plain = False
        replaces: str | None = None
        guard: ResendGuard = self._platform.abilities.resend_guard
        while True:
            if context.draining.is_set():
                await self._give_back()
                return "gone"
            try:
                post = await build_post(self._platform, context.media, outgoing, part, as_plain=as_plain)
                if part == 0 and outgoing.parts.pieces:
                    replaces = await self._streamed.id_to_replace(outgoing.entry.line, post, outgoing.rates)
                    # An edit made twice shows one message: it needs no look-up, as with a key.
                    guard = "key" if replaces else self._platform.abilities.resend_guard
                if unclear and guard == "look-up":
                    found = await context.call(self._lease, partial(self._platform.find, post))
                    if found is not None:
                        return await self._confirm(part, found)
                    DELIVERY_NOT_FOUND.labels(self._platform.name).inc()
                    log.info("post not found, sent again", **self._log_fields(), line=self._seq)
                    unclear = False
                rates = outgoing.rates.edits if replaces else outgoing.rates.posts
                if not await self._announce(part, rates, guard=guard):
                    return "gone"
                return await self._confirm(part, await self._call(post, replaces))
            except Throttled as throttled:
                if throttled.whole_bot:
                    await self._deliveries.pause(throttled.retry_after_s)
                return await self._put_off(max(LEAST_S, throttled.retry_after_s), throttled)
            except MarkupRefused as refused:
                if as_plain:
                    return await self._give_up(refused.reason)
                as_plain = True
            except PostRefused as refused:
                if replaces is None:
                    return await self._give_up(refused.reason)
                # The streamed message was deleted, or is too old to be edited: send a new one.
                self._streamed.forget()
            except ChatClosed as closed:
                return await self._give_up(closed.reason, drop_all=True)
            except NotDelivered as exc:
                if isinstance(exc, ChannelFault) and self._state.tries >= FAULTS:
                    return await self._give_up(exc.reason)
                risky = guard == "nothing" and not isinstance(exc, NotAccepted | ChannelFault)
                return await self._put_off(self._back_off(UNCLEAR_CAP_S if risky else CAP_S), exc)

    async def _call(self, post: Post, replaces: str | None) -> str:
        crash_point("before_post")
        # Set before the call: if it is cancelled, the post may be on its way all the same.
        self._lease.in_doubt = True
        try:
            if replaces is None:
                id = await self._context.call(self._lease, partial(self._platform.send, post))
            else:
                await self._context.call(self._lease, partial(self._platform.edit, replaces, post))
                id = replaces
        except MaybeSent:
            raise
        except NotDelivered:
            self._lease.in_doubt = False  # surely not accepted
            raise
        crash_point("after_post")
        return id

    def _back_off(self, cap_s: float) -> float:
        """Return a wait that doubles with each try, drawn from its upper half."""
        ceiling = min(cap_s, FIRST_S * 2.0 ** min(self._state.tries, 16))
        return random.uniform(ceiling / 2, ceiling)

    async def _announce(self, part: int, rates: Sequence[RateKey], *, guard: ResendGuard) -> bool:
        """Record the send intent; wait for the rates if needed. False: the chat is not ours."""
        context = self._context
        lease = self._lease
        while True:
            asked_at = context.clock.monotonic()
            cleared = await self._deliveries.begin_post(lease.chat, self._seq, part, rates)
            if cleared is None:
                return False
            # The lease runs from when the call was made: Redis may have counted from then.
            lease.renewed(asked_at)
            if not isinstance(cleared, Wait):
                if cleared.unclear and guard == "nothing":
                    DELIVERY_UNKNOWN.labels(self._platform.name).inc()
                    log.warning("post sent again", **self._log_fields(), line=self._seq)
                return True
            if cleared.seconds > SHORT_S or context.draining.is_set():
                await self._give_back(cleared.seconds)
                return False
            await event_within(context.draining, cleared.seconds)

    async def _confirm(self, part: int, id: str) -> Outcome:
        """Record that the platform has a post, as `id`."""
        lease = self._lease
        clock = self._context.clock
        last = part == self._outgoing.parts.count - 1
        asked_at = clock.monotonic()
        with lease.while_reporting():
            ours = await self._deliveries.finish_post(
                lease.chat, self._seq, part, last=last, id=id, retry_for_s=REPORT_RETRY_S
            )
            lease.in_doubt = False
            if not ours:
                return "gone"
            lease.renewed(asked_at)
            # The report may have been retried past the fence. The store still took it, but the chat
            # may be another gateway's by now: only a renewal tells.
            if not lease.safe_s:
                asked_at = clock.monotonic()
                if await self._deliveries.renew([lease.chat]):
                    return "gone"
                lease.renewed(asked_at)
        crash_point("after_sent")
        return "sent"

    async def _put_off(self, delay_s: float, why: NotDelivered) -> Outcome:
        """Give the chat back after a failed or unclear try; it is due again after `delay_s`."""
        log.info("post put off", **self._log_fields(), reason=why.reason, delay_s=round(delay_s, 1))
        unclear = isinstance(why, MaybeSent)
        with self._lease.while_reporting():
            await self._deliveries.requeue(self._lease.chat, delay_s, unclear=unclear, retry_for_s=REPORT_RETRY_S)
            self._lease.in_doubt = False
        return "gone"

    async def _give_back(self, delay_s: float = 0.0) -> None:
        """Give the chat back without counting a try."""
        await self._deliveries.requeue(self._lease.chat, delay_s, unclear=False, counts=False)

    async def _give_up(self, reason: str, *, drop_all: bool = False, too_late: bool = False) -> Outcome:
        """Dead-letter the line; with `drop_all` every waiting line, and close the chat."""
        event = "chat closed" if drop_all else "line given up"
        log.warning(event, **self._log_fields(), line=self._seq, reason=reason)
        kept = {"drop_all": drop_all, "too_late": too_late}
        with self._lease.while_reporting():
            ours = await self._deliveries.give_up_line(
                self._lease.chat, self._seq, reason, **kept, retry_for_s=REPORT_RETRY_S
            )
            self._lease.in_doubt = False
        self._count("dropped" if drop_all else "dead")
        return "given up" if ours else "gone"

    def _count(self, outcome: str) -> None:
        DELIVERIES.labels(self._platform.name, outcome).inc()

    def _log_fields(self) -> dict[str, Any]:
        return {"channel": self._platform.name, "session": log_id(self._lease.session)}
