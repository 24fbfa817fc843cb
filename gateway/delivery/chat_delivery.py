"""One chat under a lease: its lines go out in order; a running turn is shown meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import Final

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.line_delivery import LineDelivery
from gateway.delivery.line_posts import OutgoingLine, render_off_loop, split_line, target_of
from gateway.delivery.platform_calls import DeliveryContext, Rates, rates_of
from gateway.delivery.streamed_message import StreamedMessage, TurnText
from gateway.platform.protocol import GROUP_NOTE, NotDelivered, PostTarget
from gateway.process.traces import delivery_span
from shared.backoff import Backoff
from shared.errors import LeaseLost, RedisAway
from shared.messages.live import JoinedEvent, TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.store.delivery.deliveries import DeliveryState
from shared.store.delivery.fanout import ChatNews
from shared.store.delivery.outbox import NumberedLine
from shared.tasks import cancel_all, close_all, event_within

RECHECK_S: Final = 1.0  # a chat's state is read again at least this often: pub/sub may lose news
SILENT_S: Final = 600.0  # a turn without news for this long is not shown as typing any more
ASIDE_S: Final = 10.0
"""A chat without news for this long yields its slot when others wait, until its next line."""

TYPING_AFTER_S: Final = 0.5  # a turn that is answered sooner is not announced
TYPING_CALL_S: Final = 5.0


class ChatDelivery:
    """Delivers one chat, until it is quiet, given back or lost. Who cancels it gives it back."""

    def __init__(self, lease: ChatLease, context: DeliveryContext) -> None:
        self._lease = lease
        self._context = context
        self._platform = context.platform
        self._deliveries = context.deliveries
        self._turn_text = TurnText(progress=context.progress, streamed=lease.chat.shown)
        self._streamed = StreamedMessage(context, lease)
        # Without lines the state is read again first: one may have come after the chat was claimed
        # and before its news is followed.
        self._state: DeliveryState | None = lease.chat if lease.chat.pending else None
        self._stale = False
        self._planned = False
        self._question_turn = 0  # the turn that waits for a person's approval
        self._last_news_at = context.clock.monotonic()
        self._type_at = context.clock.monotonic() + TYPING_AFTER_S
        self._typing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Deliver until the chat is quiet, given back or lost."""
        fanout = self._context.fanout
        session = self._lease.session
        try:
            await fanout.follow_chat(session, self._on_news)
            await self._serve()
        except LeaseLost:
            pass
        finally:
            self._lease.ended = True
            typing = [] if self._typing is None else [self._typing]
            await close_all(partial(fanout.unfollow_chat, session), partial(cancel_all, typing))

    def recheck(self) -> None:
        """Read the chat's state again: news may have been missed, or the process is draining."""
        self._stale = True
        self._lease.news.set()

    def _on_news(self, news: ChatNews) -> None:
        self._last_news_at = self._context.clock.monotonic()
        if isinstance(news, NumberedLine):
            self._stale = True
        else:
            self._turn_text.apply(news)
            self._question_turn = 0
            if isinstance(news, TurnEvent | JoinedEvent):
                self._stale = True
            elif self._planned:
                return  # the update that is planned shows this too: do not wake for each delta
        self._lease.news.set()

    async def _serve(self) -> None:
        backoff = Backoff()
        while True:
            try:
                # Redis went away between a post and its record. A second post here could be shown
                # twice, so the chat is given back as unclear: the resend guard then decides.
                if self._lease.in_doubt:
                    chat = self._lease.chat
                    await self._deliveries.requeue(chat, 0.0, unclear=True, counts=False)
                    return
                if not await self._step():
                    return
                backoff.reset()
            except RedisAway:
                await backoff.sleep()

    async def _step(self) -> bool:
        """Do the next thing; return whether the chat is still ours."""
        state = self._state or await self._deliveries.read_chat(self._lease.chat)
        self._state = None
        if state is None:
            return False
        if self._context.draining.is_set():
            await self._deliveries.requeue(self._lease.chat, 0.0, unclear=False, counts=False)
            return False
        if state.pending:
            return await self._deliver_first(state)
        if self._may_leave(state):
            chat = self._lease.chat
            running = state.running is not None
            return not await self._deliveries.release_quiet(chat, though_running=running)
        await self._show_turn(state)
        return True

    async def _deliver_first(self, state: DeliveryState) -> bool:
        """Send the oldest waiting line; return whether the chat is still ours."""
        entry = state.pending[0]
        line = state.pending[0].line
        platform = self._platform
        target, rates = self._target_and_rates(state)
        parts = await render_off_loop(
            line.content if isinstance(line, OutboundMessage) else "",
            lambda: split_line(line, platform.render, platform.abilities, age_s=entry.age_s),
        )
        # Something else may stand between a message and its answer: other people's, or a later one.
        quote = state.notes.get(GROUP_NOTE) == "1" or state.running is not None
        outgoing = OutgoingLine(entry, target, rates, parts, quote)
        with delivery_span(line, platform.name, self._lease.session):
            if not await LineDelivery(self._context, self._lease, outgoing, state, self._streamed).run():
                return False
        if isinstance(line, OutboundMessage) and line.approval and line.approval.state == "open":
            self._question_turn = line.turn
        await self._streamed.mark_stopped(line, self._turn_text, target, rates)
        return True

    def _target_and_rates(self, state: DeliveryState) -> tuple[PostTarget, Rates]:
        target = target_of(self._lease.session, dict(state.notes), self._platform.abilities)
        group = state.notes.get(GROUP_NOTE) == "1"
        return target, rates_of(target, self._platform.abilities, group=group)

    def _may_leave(self, state: DeliveryState) -> bool:
        """Return whether nothing is to be done before the next line, or other chats wait."""
        abilities = self._platform.abilities
        blind = not abilities.edit_every_s and not abilities.typing_every_s
        aside = self._context.full.is_set() and self._context.clock.monotonic() - self._last_news_at > ASIDE_S
        return state.running is None or blind or state.background or state.closed or aside

    async def _show_turn(self, state: DeliveryState) -> None:
        """Show the progress of the turn until the chat's state must be read again."""
        clock, target, rates = self._context.clock, *self._target_and_rates(state)
        recheck_at = clock.monotonic() + RECHECK_S
        while not self._stale and (left_s := recheck_at - clock.monotonic()) > 0:
            # Cleared before the wait is worked out, so that news from here on ends it.
            self._lease.news.clear()
            due_s = self._streamed.due_s(self._turn_text, state)
            if due_s == 0:
                await self._streamed.update(self._turn_text, target, rates)
                continue
            type_s = self._send_typing(state, target, rates)
            self._planned = due_s is not None
            try:
                await event_within(self._lease.news, min(left_s, type_s, due_s or math.inf))
            finally:
                self._planned = False
        self._stale = False

    def _send_typing(self, state: DeliveryState, target: PostTarget, rates: Rates) -> float:
        """Send "is typing" if it is due; return the seconds until the next one."""
        now = self._context.clock.monotonic()
        every_s = self._platform.abilities.typing_every_s
        # A turn that waits for a person does not type.
        quiet = now - self._last_news_at > SILENT_S or state.running == self._question_turn
        if quiet or not every_s:
            return math.inf
        if now >= self._type_at:
            self._type_at = now + every_s
            if self._typing is None or self._typing.done():
                self._typing = asyncio.create_task(self._type(target, rates), name="typing")
        return max(0.001, self._type_at - now)

    async def _type(self, target: PostTarget, rates: Rates) -> None:
        # Nothing waits for it, so its errors are dropped.
        with contextlib.suppress(RedisAway, LeaseLost, NotDelivered):
            if await self._deliveries.reserve_call(self._lease.chat, rates.typing) == 0:
                typing = partial(self._platform.typing, target)
                await self._context.call(self._lease, typing, within_s=TYPING_CALL_S)
