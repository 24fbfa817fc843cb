"""One line of a chat on its way out: post by post, in order, and what is done about each thing that
can go wrong."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import Hold
from gateway.delivery.platform_calls import Calls, Fault
from gateway.delivery.post_builder import Going, PostMaker
from gateway.delivery.post_record import Outcome, PostRecord
from gateway.delivery.streamed_message import Bubble
from gateway.platform.protocol import (
    ChatClosed,
    MarkupRefused,
    NotAccepted,
    NotDelivered,
    Platform,
    Post,
    PostRefused,
    Throttled,
    Unclear,
)
from shared.clock import Clock
from shared.messages.outbound import OutboundMessage
from shared.metrics import DELIVERY_SECONDS
from shared.process.crash_points import crash_point
from shared.store.delivery.deliveries import AfterUnclear, Deliveries, Look

FIRST_S: Final = 1.0
CAP_S: Final = 60.0
UNCLEAR_CAP_S: Final = 600.0
"""The longest wait between two tries; where each try may be shown once more, they are rarer."""

LEAST_S: Final = 0.5
"""The shortest wait, for platforms that say "too many, again in 0 s"."""

FAULTS: Final = 5
"""A line over which the channel's own code breaks so often is given up."""


class Posting:
    """Sends the lines of the chats of one channel."""

    def __init__(
        self,
        platform: Platform,
        deliveries: Deliveries,
        calls: Calls,
        posts: PostMaker,
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

    async def deliver(self, hold: Hold, going: Going, look: Look, bubble: Bubble) -> bool:
        """Send a line, from post `look.part` on; whether the chat is still ours. Raises RedisAway,
        and LeaseLost when the lease is in doubt."""
        ours = await self._deliver(hold, going, look, bubble)
        if ours:
            bubble.used(going.entry.line)
        return ours

    async def _deliver(self, hold: Hold, going: Going, look: Look, bubble: Bubble) -> bool:
        if going.entry.age_s > self._platform.abilities.give_up_after_s:
            return await self._record.give_up(hold, going, "it has waited too long", too_late=True) != "gone"
        if not going.parts.count:
            return await self._record.nothing(hold, going)
        for part in range(look.part, going.parts.count):
            unclear = look.unclear and part == look.part
            outcome = await self._post(hold, going, part, bubble, unclear=unclear, tries=look.tries)
            if outcome != "there":
                return outcome == "given up"
        self._record.count("sent")
        if isinstance(going.entry.line, OutboundMessage) and (at := going.entry.line.at):
            DELIVERY_SECONDS.labels(self._platform.name).observe(max(0.0, (self._clock.now_ms() - at) / 1000))
        return True

    async def _post(self, hold: Hold, going: Going, part: int, bubble: Bubble, *, unclear: bool, tries: int) -> Outcome:
        """One post, as often as something else is to be tried at once. `unclear`: it may be there
        from before."""
        record, as_plain = self._record, False
        replaces: str | None = None
        offers: AfterUnclear = self._platform.abilities.after_unclear
        while True:
            if self._draining.is_set():
                await record.give_back(hold)
                return "gone"
            try:
                post = await self._posts.make(going, part, as_plain=as_plain)
                if part == 0 and going.parts.pieces:
                    replaces = await bubble.place_of(going.entry.line, post, going.rates)
                    # What is put in the place of something twice is there once.
                    offers = "key" if replaces else self._platform.abilities.after_unclear
                if unclear and offers == "look-up":
                    found = await self._calls.make(hold, partial(self._platform.find, post))
                    if found is not None:
                        return await record.there(hold, going, part, found)
                    unclear = False
                rates = going.rates.edits if replaces else going.rates.posts
                if not await record.ahead(hold, going, part, rates, offers=offers):
                    return "gone"
                return await record.there(hold, going, part, await self._call(hold, post, replaces))
            except Throttled as throttled:
                if throttled.whole_bot:
                    await self._deliveries.pause(throttled.retry_after_s)
                return await record.later(hold, max(LEAST_S, throttled.retry_after_s), throttled)
            except MarkupRefused as refused:
                if as_plain:
                    return await record.give_up(hold, going, refused.reason)
                as_plain = True
            except PostRefused as refused:
                if replaces is None:
                    return await record.give_up(hold, going, refused.reason)
                bubble.forget()  # it was deleted, or is too old to be changed
            except ChatClosed as closed:
                return await record.give_up(hold, going, closed.reason, drop_all=True)
            except NotAccepted as exc:
                return await record.later(hold, _back_off(tries, CAP_S), exc)
            except Fault as fault:
                if tries >= FAULTS:
                    return await record.give_up(hold, going, fault.reason)
                return await record.later(hold, _back_off(tries, CAP_S), fault)
            except NotDelivered as exc:
                return await record.later(hold, _back_off(tries, UNCLEAR_CAP_S if offers == "nothing" else CAP_S), exc)

    async def _call(self, hold: Hold, post: Post, replaces: str | None) -> str:
        crash_point("before_post")
        hold.in_doubt = True
        try:
            if replaces is None:
                id = await self._calls.make(hold, partial(self._platform.send, post))
            else:
                await self._calls.make(hold, partial(self._platform.edit, replaces, post))
                id = replaces
        except Unclear:
            raise
        except NotDelivered:
            hold.in_doubt = False
            raise
        crash_point("after_post")
        return id


def _back_off(tries: int, cap_s: float) -> float:
    """A wait that doubles with each try, drawn from its upper half: a wait of nothing would help
    nobody."""
    ceiling = min(cap_s, FIRST_S * 2.0 ** min(tries, 16))
    return random.uniform(ceiling / 2, ceiling)
