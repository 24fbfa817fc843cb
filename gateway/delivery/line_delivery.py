"""The delivery of one line of a chat: post by post, in order, with what to do about each
failure."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.context import DeliveryContext
from gateway.delivery.line_posts import OutgoingLine
from gateway.delivery.platform_calls import ChannelFault
from gateway.delivery.post_record import Outcome, PostRecord
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
from shared.messages.outbound import OutboundMessage
from shared.metrics import DELIVERY_SECONDS
from shared.store.delivery.deliveries import DeliveryState, ResendGuard

FIRST_S: Final = 1.0
CAP_S: Final = 60.0
UNCLEAR_CAP_S: Final = 600.0
"""The longest waits between two tries. Where each try may show the post once more, tries are
rarer."""

LEAST_S: Final = 0.5
"""The shortest wait, for platforms that say "too many, again in 0 s"."""

FAULTS: Final = 5
"""A line is given up when the channel's own code has broken over it this often."""


class LineDelivery:
    """Sends one line of a leased chat."""

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
        self._lease = lease
        self._outgoing = outgoing
        self._state = state
        self._streamed = streamed
        self._record = PostRecord(context, lease, outgoing)

    async def run(self) -> bool:
        """Send the line from post `state.part` on; return whether the chat is still ours. Raises
        RedisAway, and LeaseLost when the lease is in doubt."""
        ours = await self._deliver()
        if ours:
            self._streamed.line_finished(self._outgoing.entry.line)
        return ours

    async def _deliver(self) -> bool:
        outgoing = self._outgoing
        if outgoing.entry.age_s > self._platform.abilities.give_up_after_s:
            return await self._record.give_up("it has waited too long", too_late=True) != "gone"
        if not outgoing.parts.count:
            return await self._record.skip()
        for part in range(self._state.part, outgoing.parts.count):
            # Only the first post can be in doubt: what follows it was never tried.
            outcome = await self._send_post(part, unclear=self._state.unclear and part == self._state.part)
            if outcome != "sent":
                return outcome == "given up"
        self._record.count("sent")
        if isinstance(outgoing.entry.line, OutboundMessage) and (at := outgoing.entry.line.at):
            seconds = (self._context.clock.now_ms() - at) / 1000
            DELIVERY_SECONDS.labels(self._platform.name).observe(max(0.0, seconds))
        return True

    async def _send_post(self, part: int, *, unclear: bool) -> Outcome:
        """Send one post, in as many ways as can be tried at once. `unclear`: an earlier try may
        have shown it."""
        outgoing, record, as_plain = self._outgoing, self._record, False
        replaces: str | None = None
        guard: ResendGuard = self._platform.abilities.resend_guard
        while True:
            if self._context.draining.is_set():
                await record.give_back()
                return "gone"
            try:
                post = await self._context.posts.build(outgoing, part, as_plain=as_plain)
                if part == 0 and outgoing.parts.pieces:
                    replaces = await self._streamed.id_to_replace(outgoing.entry.line, post, outgoing.rates)
                    # An edit made twice shows one message, so it needs no look-up: as good as a
                    # key.
                    guard = "key" if replaces else self._platform.abilities.resend_guard
                if unclear and guard == "look-up":
                    found = await self._context.calls.run(self._lease, partial(self._platform.find, post))
                    if found is not None:
                        return await record.confirm(part, found)
                    unclear = False
                rates = outgoing.rates.edits if replaces else outgoing.rates.posts
                if not await record.announce(part, rates, guard=guard):
                    return "gone"
                return await record.confirm(part, await self._call(post, replaces))
            except Throttled as throttled:
                if throttled.whole_bot:
                    await self._context.deliveries.pause(throttled.retry_after_s)
                return await record.put_off(max(LEAST_S, throttled.retry_after_s), throttled)
            except MarkupRefused as refused:
                if as_plain:
                    return await record.give_up(refused.reason)
                as_plain = True
            except PostRefused as refused:
                if replaces is None:
                    return await record.give_up(refused.reason)
                # The streamed message was deleted, or is too old to be edited: send a new one.
                self._streamed.forget()
            except ChatClosed as closed:
                return await record.give_up(closed.reason, drop_all=True)
            except NotAccepted as exc:
                return await record.put_off(self._back_off(CAP_S), exc)
            except ChannelFault as fault:
                if self._state.tries >= FAULTS:
                    return await record.give_up(fault.reason)
                return await record.put_off(self._back_off(CAP_S), fault)
            except NotDelivered as exc:
                return await record.put_off(self._back_off(UNCLEAR_CAP_S if guard == "nothing" else CAP_S), exc)

    async def _call(self, post: Post, replaces: str | None) -> str:
        crash_point("before_post")
        # Set before the call: if it is cancelled, the post may be on its way all the same.
        self._lease.in_doubt = True
        try:
            if replaces is None:
                id = await self._context.calls.run(self._lease, partial(self._platform.send, post))
            else:
                await self._context.calls.run(self._lease, partial(self._platform.edit, replaces, post))
                id = replaces
        except MaybeSent:
            raise
        except NotDelivered:
            self._lease.in_doubt = False  # surely not accepted
            raise
        crash_point("after_post")
        return id

    def _back_off(self, cap_s: float) -> float:
        """Return a wait that doubles with each try, drawn from its upper half: a wait near 0 would
        only repeat the failure."""
        ceiling = min(cap_s, FIRST_S * 2.0 ** min(self._state.tries, 16))
        return random.uniform(ceiling / 2, ceiling)
