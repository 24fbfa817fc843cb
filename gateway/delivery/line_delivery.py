"""One line of a chat on its way out: post by post, in order, and what is done about each thing that
can go wrong."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.platform_calls import ChannelFault, PlatformCalls
from gateway.delivery.post_builder import OutgoingLine, PostBuilder
from gateway.delivery.post_record import Outcome, PostRecord
from gateway.delivery.streamed_message import StreamedMessage
from gateway.platform.protocol import (
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Platform,
    Post,
    PostRefused,
    Throttled,
)
from shared.clock import Clock
from shared.messages.outbound import OutboundMessage
from shared.metrics import DELIVERY_SECONDS
from shared.process.crash_points import crash_point
from shared.store.delivery.deliveries import DeliveryQueue, DeliveryState, ResendGuard

FIRST_S: Final = 1.0
CAP_S: Final = 60.0
UNCLEAR_CAP_S: Final = 600.0
"""The longest wait between two tries; where each try may be shown once more, they are rarer."""

LEAST_S: Final = 0.5
"""The shortest wait, for platforms that say "too many, again in 0 s"."""

FAULTS: Final = 5
"""A line over which the channel's own code breaks so often is given up."""


class LineDelivery:
    """Sends the lines of the chats of one channel."""

    def __init__(
        self,
        platform: Platform,
        deliveries: DeliveryQueue,
        calls: PlatformCalls,
        posts: PostBuilder,
        *,
        draining: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._platform = platform
        self._deliveries = deliveries
        self._calls = calls
        self._posts = posts
        self._record = PostRecord(platform.name, deliveries, draining=draining, clock=clock)
        self._draining = draining
        self._clock = clock

    async def deliver(
        self, lease: ChatLease, outgoing: OutgoingLine, state: DeliveryState, streamed: StreamedMessage
    ) -> bool:
        """Send a line, from post `look.part` on; whether the chat is still ours. Raises RedisAway,
        and LeaseLost when the lease is in doubt."""
        ours = await self._deliver_posts(lease, outgoing, state, streamed)
        if ours:
            streamed.line_finished(outgoing.entry.line)
        return ours

    async def _deliver_posts(
        self, lease: ChatLease, outgoing: OutgoingLine, state: DeliveryState, streamed: StreamedMessage
    ) -> bool:
        if outgoing.entry.age_s > self._platform.abilities.give_up_after_s:
            return await self._record.give_up(lease, outgoing, "it has waited too long", too_late=True) != "gone"
        if not outgoing.parts.count:
            return await self._record.skip(lease, outgoing)
        for part in range(state.part, outgoing.parts.count):
            unclear = state.unclear and part == state.part
            outcome = await self._send_post(lease, outgoing, part, streamed, unclear=unclear, tries=state.tries)
            if outcome != "there":
                return outcome == "given up"
        self._record.count("sent")
        if isinstance(outgoing.entry.line, OutboundMessage) and (at := outgoing.entry.line.at):
            DELIVERY_SECONDS.labels(self._platform.name).observe(max(0.0, (self._clock.now_ms() - at) / 1000))
        return True

    async def _send_post(
        self,
        lease: ChatLease,
        outgoing: OutgoingLine,
        part: int,
        streamed: StreamedMessage,
        *,
        unclear: bool,
        tries: int,
    ) -> Outcome:
        """One post, as often as something else is to be tried at once. `unclear`: it may be there
        from before."""
        record, as_plain = self._record, False
        replaces: str | None = None
        guard: ResendGuard = self._platform.abilities.resend_guard
        while True:
            if self._draining.is_set():
                await record.give_back(lease)
                return "gone"
            try:
                post = await self._posts.build(outgoing, part, as_plain=as_plain)
                if part == 0 and outgoing.parts.pieces:
                    replaces = await streamed.id_to_replace(outgoing.entry.line, post, outgoing.rates)
                    # What is put in the place of something twice is there once.
                    guard = "key" if replaces else self._platform.abilities.resend_guard
                if unclear and guard == "look-up":
                    found = await self._calls.run(lease, partial(self._platform.find, post))
                    if found is not None:
                        return await record.confirm(lease, outgoing, part, found)
                    unclear = False
                rates = outgoing.rates.edits if replaces else outgoing.rates.posts
                if not await record.announce(lease, outgoing, part, rates, guard=guard):
                    return "gone"
                return await record.confirm(lease, outgoing, part, await self._call(lease, post, replaces))
            except Throttled as throttled:
                if throttled.whole_bot:
                    await self._deliveries.pause(throttled.retry_after_s)
                return await record.put_off(lease, max(LEAST_S, throttled.retry_after_s), throttled)
            except MarkupRefused as refused:
                if as_plain:
                    return await record.give_up(lease, outgoing, refused.reason)
                as_plain = True
            except PostRefused as refused:
                if replaces is None:
                    return await record.give_up(lease, outgoing, refused.reason)
                streamed.forget()  # it was deleted, or is too old to be changed
            except ChatClosed as closed:
                return await record.give_up(lease, outgoing, closed.reason, drop_all=True)
            except NotAccepted as exc:
                return await record.put_off(lease, _back_off(tries, CAP_S), exc)
            except ChannelFault as fault:
                if tries >= FAULTS:
                    return await record.give_up(lease, outgoing, fault.reason)
                return await record.put_off(lease, _back_off(tries, CAP_S), fault)
            except NotDelivered as exc:
                return await record.put_off(
                    lease, _back_off(tries, UNCLEAR_CAP_S if guard == "nothing" else CAP_S), exc
                )

    async def _call(self, lease: ChatLease, post: Post, replaces: str | None) -> str:
        crash_point("before_post")
        lease.in_doubt = True
        try:
            if replaces is None:
                id = await self._calls.run(lease, partial(self._platform.send, post))
            else:
                await self._calls.run(lease, partial(self._platform.edit, replaces, post))
                id = replaces
        except MaybeSent:
            raise
        except NotDelivered:
            lease.in_doubt = False
            raise
        crash_point("after_post")
        return id


def _back_off(tries: int, cap_s: float) -> float:
    """A wait that doubles with each try, drawn from its upper half: a wait of nothing would help
    nobody."""
    ceiling = min(cap_s, FIRST_S * 2.0 ** min(tries, 16))
    return random.uniform(ceiling / 2, ceiling)
