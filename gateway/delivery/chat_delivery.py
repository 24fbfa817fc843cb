"""One chat while this process has it: its lines go out in order; while a turn runs, "is typing" and
its text so far."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Final

import msgspec

from gateway.delivery.chat_lease import Hold
from gateway.delivery.line_delivery import Posting
from gateway.delivery.line_posts import GROUP, place_of
from gateway.delivery.platform_calls import Calls
from gateway.delivery.post_builder import PostMaker
from gateway.delivery.rates import Rates, rates_of
from gateway.delivery.streamed_message import Bubble
from gateway.delivery.turn_text import Stream
from gateway.delivery.typing_notice import TypingNotice
from gateway.platform.protocol import Place, Platform
from gateway.process.traces import delivering
from shared.backoff import full_jitter
from shared.clock import Clock
from shared.errors import LeaseLost, RedisAway
from shared.messages.live import JoinedEvent, TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.client.redis_client import RECONNECT_CAP_S, RECONNECT_FIRST_S
from shared.store.delivery.deliveries import Deliveries, Look
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import NumberedLine

LOOK_S: Final = 1.0
"""A chat is looked at again after so long, whatever is heard: pub/sub may lose news."""

SILENT_S: Final = 600.0
"""A turn of which nothing was heard for so long is not announced any more."""

ASIDE_S: Final = 10.0
"""A chat of which nothing was heard for so long steps aside when others wait; its next line brings
it back."""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What the chats of a channel are served with."""

    platform: Platform
    deliveries: Deliveries
    fanout: Fanout
    calls: Calls
    posts: PostMaker
    posting: Posting
    draining: asyncio.Event
    clock: Clock
    progress: bool


class Attending:
    """The service of one chat. `attend` ends when the chat is quiet, given back or lost; whoever
    cancels it gives the chat back."""

    def __init__(self, hold: Hold, means: Means) -> None:
        self.full = False
        """Whether other chats wait for a place in this process."""

        self._hold = hold
        self._means = means
        self._platform, self._deliveries = means.platform, means.deliveries
        self._stream = Stream(progress=means.progress)
        self._bubble = Bubble(hold, means.platform, means.deliveries, means.calls, clock=means.clock)
        # A line that came since the chat was taken, and before its news is heard, is found by
        # looking again.
        self._look: Look | None = hold.delivery if hold.delivery.entries else None
        self._stale = False
        self._planned = False
        self._asks = 0  # the turn that waits for a person's yes
        self._heard_at = means.clock.monotonic()
        self._typing = TypingNotice(hold, means.platform, means.deliveries, means.calls, clock=means.clock)

    async def attend(self) -> None:
        """Serve the chat."""
        await self._means.fanout.listen(self._hold.session, self._hear)
        try:
            await self._serve()
        except LeaseLost:
            pass
        finally:
            self._hold.over = True
            await self._typing.close()
            await self._means.fanout.leave(self._hold.session)

    def look_again(self) -> None:
        """News may have been missed, or the process is asked to end."""
        self._stale = True
        self._hold.news.set()

    def _hear(self, news: ChatNews) -> None:
        self._heard_at = self._means.clock.monotonic()
        if isinstance(news, NumberedLine):
            self._stale = True
        else:
            self._stream.take(news)
            self._asks = 0
            if isinstance(news, TurnEvent | JoinedEvent):
                self._stale = True
            elif self._planned:
                return  # what is shown next has it
        self._hold.news.set()

    async def _serve(self) -> None:
        waits = full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S)
        while True:
            try:
                if self._hold.in_doubt:  # Redis went away between a post and its record
                    await self._deliveries.later(self._hold.delivery, 0.0, unclear=True, counts=False)
                    return
                if not await self._step():
                    return
                waits = full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S)
            except RedisAway:
                await asyncio.sleep(next(waits))

    async def _step(self) -> bool:
        """Do the next thing; whether the chat is still ours."""
        look, self._look = self._look or await self._deliveries.look(self._hold.delivery), None
        if look is None:
            return False
        if self._means.draining.is_set():
            await self._deliveries.later(self._hold.delivery, 0.0, unclear=False, counts=False)
            return False
        if look.entries:
            return await self._deliver(look)
        if self._may_go(look):
            return not await self._deliveries.leave(self._hold.delivery, though_running=look.running is not None)
        await self._show(look)
        return True

    async def _deliver(self, look: Look) -> bool:
        """Send the first line that waits."""
        entry, place, rates = look.entries[0], *self._where(look)
        # Something else may stand between a message and its answer: other people's, or a later one.
        quote = look.notes.get(GROUP) == "1" or look.running is not None
        going = await self._means.posts.going(entry, place, rates, quote=quote)
        with delivering(entry.line, self._platform.name, self._hold.session):
            there = await self._means.posting.deliver(self._hold, going, look, self._bubble)
        if not there:
            return False
        self._asks = _asking(entry.line) or self._asks
        if self._bubble.is_cut_by(entry.line):
            await self._bubble.end(self._stream, place, rates)
        return True

    def _where(self, look: Look) -> tuple[Place, Rates]:
        place = place_of(self._hold.session, dict(look.notes), self._platform.abilities)
        group = look.notes.get(GROUP) == "1"
        return place, rates_of(place, self._platform.abilities, group=group)

    def _may_go(self, look: Look) -> bool:
        """Whether there is nothing to do here before the next line: no turn, nothing to show of it,
        or others wait."""
        abilities = self._platform.abilities
        blind = not abilities.edit_every_s and not abilities.typing_every_s
        aside = self.full and self._means.clock.monotonic() - self._heard_at > ASIDE_S
        return look.running is None or blind or look.background or look.closed or aside

    async def _show(self, look: Look) -> None:
        """Show how the turn goes until the chat must be looked at again."""
        clock, place, rates = self._means.clock, *self._where(look)
        look_at = clock.monotonic() + LOOK_S
        while not self._stale and (left_s := look_at - clock.monotonic()) > 0:
            self._hold.news.clear()
            due_s = self._bubble.due_s(self._stream, look)
            if due_s == 0:
                await self._bubble.show(self._stream, place, rates)
                continue
            type_s = self._type(look, place, rates)
            self._planned = due_s is not None
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, type_s, due_s or math.inf)):
                        await self._hold.news.wait()
            finally:
                self._planned = False
        self._stale = False

    def _type(self, look: Look, place: Place, rates: Rates) -> float:
        """Say that somebody types, if it is time; in how many seconds it will be."""
        silent = self._means.clock.monotonic() - self._heard_at > SILENT_S
        return math.inf if silent or look.running == self._asks else self._typing.say(place, rates)


def _asking(line: LogLine) -> int:
    """The turn that waits for the answer to this line; 0 = none."""
    asks = isinstance(line, OutboundMessage) and line.approval is not None and line.approval.state == "open"
    return line.turn if asks and isinstance(line, OutboundMessage) else 0
