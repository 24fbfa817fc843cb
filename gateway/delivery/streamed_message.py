"""The message of a chat that a running turn is streamed into, by edits, as often as the platform
takes them.

Nothing here delays or doubles a reply: whatever goes wrong ends the streaming of that turn, and its
reply comes as it would without. The platform's id of the message is kept with the chat, so that
another gateway, or another attempt at the turn, goes on with the same one; the first piece of the
reply takes its place. Its key is kept before it is sent: by that a platform with keys or a look-up
tells the id of one whose sender died, or heard no answer.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import msgspec

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.line_posts import STOPPED
from gateway.delivery.platform_calls import PlatformCalls
from gateway.delivery.rates import Rates, spare
from gateway.delivery.rendering import render_off_loop
from gateway.delivery.turn_text import TurnText
from gateway.platform.protocol import (
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Piece,
    Platform,
    Post,
    PostRefused,
    PostTarget,
    Throttled,
)
from shared.clock import Clock
from shared.ids import nonce
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.delivery.deliveries import DeliveryQueue, DeliveryState

AFTER_S: Final = 0.6
"""A turn that is answered within so long is not streamed: one message, no edit."""

CALL_S: Final = 5.0
"""An edit has at most so long: the reply may wait behind it."""

AWAY_S: Final = 5.0
"""Next try after the platform took nothing."""


class StreamedMessage:
    """The one of a chat. `place` and `rates` are those of its posts."""

    def __init__(
        self,
        lease: ChatLease,
        platform: Platform,
        deliveries: DeliveryQueue,
        calls: PlatformCalls,
        *,
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._platform = platform
        self._deliveries = deliveries
        self._calls = calls
        self._clock = clock
        self._turn, self._id = lease.chat.streamed_message or (0, "")
        self._pending = lease.chat.pending_stream
        self._shown: Piece | None = None
        self._plain = False
        self._finished_turn = 0  # turns up to this one are not streamed any more
        self._next_at = 0.0
        self._streaming_since: tuple[int, float] = (0, 0.0)  # the turn that is streamed, and since when
        self._version = 0

    def due_s(self, text: TurnText, state: DeliveryState) -> float | None:
        """In how many seconds something is to be shown; None = nothing is."""
        if not self._platform.abilities.edit_every_s or state.running is None or state.closed:
            return None
        if (
            text.turn != state.running
            or text.ended
            or text.turn <= self._finished_turn
            or text.version == self._version
        ):
            return None
        now = self._clock.monotonic()
        if self._streaming_since[0] != text.turn:
            self._streaming_since = (text.turn, now)
        begin_at = 0.0 if self._turn == text.turn else self._streaming_since[1] + AFTER_S
        return max(0.0, max(begin_at, self._next_at) - now)

    async def update(self, turn_text: TurnText, target: PostTarget, rates: Rates) -> None:
        """Show how far the turn is. Raises RedisAway, and LeaseLost when the lease is in doubt."""
        turn, version = turn_text.turn, turn_text.version
        piece = await render_off_loop(turn_text.text, lambda: turn_text.preview(self._platform.render))
        if turn_text.turn != turn:
            return
        if piece is None or (piece == self._shown and self._turn == turn):
            self._version = version
            return
        post = self._build_post(target, piece, turn)
        wait_s = await self._wait_for_rates(turn, post, rates)
        self._next_at = self._clock.monotonic() + (wait_s or self._platform.abilities.edit_every_s)
        if wait_s > 0:
            return
        try:
            await self._send_or_edit(turn, post)
        except Throttled as throttled:
            self._next_at = self._clock.monotonic() + throttled.retry_after_s
            if throttled.whole_bot:
                await self._deliveries.pause(throttled.retry_after_s)
        except MarkupRefused:
            self._finished_turn = turn if self._plain else self._finished_turn
            self._plain = True
        except NotAccepted:
            self._next_at = self._clock.monotonic() + AWAY_S
        except NotDelivered:
            self._finished_turn = turn
        else:
            self._shown, self._version = piece, version

    async def _wait_for_rates(self, turn: int, post: Post, rates: Rates) -> float:
        """A message to stream into is begun only if it could be edited, too; its key is kept ahead
        of it."""
        if self._exists_for(turn):
            return await self._deliveries.reserve_call(self._lease.chat, spare(rates.edits))
        first = spare([*rates.posts, *rates.edits])
        return await self._deliveries.reserve_call(self._lease.chat, first, pending_stream=(turn, post.key))

    def _exists_for(self, turn: int) -> bool:
        return self._turn == turn and bool(self._id)

    def _build_post(self, target: PostTarget, piece: Piece, turn: int) -> Post:
        """With a key that no other has: a turn may have a second message, when a notice took the
        first one's place."""
        key = f"{self._lease.session}:bubble:{nonce()}"
        if self._pending is not None and self._pending[0] == turn:
            key = self._pending[1]
        return Post(target=target, key=key, piece=piece, as_plain=self._plain)

    async def _send_or_edit(self, turn: int, post: Post) -> None:
        if not self._exists_for(turn):
            doubtful = self._pending == (turn, post.key)
            id = await self._look_up(post) if doubtful else None
            if id is None:
                id = await self._send(turn, post, doubtful=doubtful)
                doubtful = doubtful and self._platform.abilities.resend_guard == "key"  # it may have another text
            await self._remember(turn, id)
            if not doubtful:
                return
        await self._calls.run(self._lease, partial(self._platform.edit, self._id, post), within_s=CALL_S)

    async def _look_up(self, post: Post) -> str | None:
        if self._platform.abilities.resend_guard != "look-up":
            return None
        return await self._calls.run(self._lease, partial(self._platform.find, post), within_s=CALL_S)

    async def _send(self, turn: int, post: Post, *, doubtful: bool) -> str:
        self._pending = turn, post.key
        try:
            return await self._calls.run(self._lease, partial(self._platform.send, post), within_s=CALL_S)
        except MaybeSent:
            raise
        except NotDelivered:
            self._pending = self._pending if doubtful else None
            raise

    async def _remember(self, turn: int, id: str) -> None:
        self._turn, self._id, self._pending = turn, id, None
        await self._deliveries.save_streamed_message(self._lease.chat, turn, id)

    async def id_to_replace(self, line: LogLine, post: Post, rates: Rates) -> str | None:
        """The id of the message that the first post of a line takes the place of; None = it gets
        one of its own. Where nobody knows whether there is such a message the platform is asked, or
        given this post under its key. Raises NotDelivered, RedisAway, LeaseLost."""
        if (
            self._pending is not None
            and self._belongs_to(line, self._pending[0])
            and not self._exists_for(self._pending[0])
        ):
            await self._resolve_pending(*self._pending, post, rates)
        return self._id if self._id and self._belongs_to(line, self._turn) else None

    async def _resolve_pending(self, turn: int, key: str, post: Post, rates: Rates) -> None:
        guard = self._platform.abilities.resend_guard
        same, id = msgspec.structs.replace(post, key=key, buttons=(), reply_to=None), None
        try:
            if guard == "look-up":
                id = await self._look_up(same)
            elif guard == "key":
                if (wait_s := await self._deliveries.reserve_call(self._lease.chat, rates.posts)) > 0:
                    raise Throttled(wait_s)
                id = await self._send(turn, same, doubtful=True)
        except (MarkupRefused, PostRefused):
            pass  # so be it: the unfinished words stay
        self._pending = None
        if id is not None:
            await self._remember(turn, id)

    @staticmethod
    def _belongs_to(line: LogLine, turn: int) -> bool:
        return isinstance(line, OutboundMessage) and line.turn == turn and line.kind != "command"

    def line_finished(self, line: LogLine) -> None:
        """A line of the chat was delivered, or cannot be."""
        if not isinstance(line, OutboundMessage):
            return
        if self._pending is not None and self._belongs_to(line, self._pending[0]):
            self._pending = None
        if self._id and self._belongs_to(line, self._turn):
            self.forget()
        if line.sent_by_tool or line.kind not in ("notice", "command"):
            self._finished_turn = max(
                self._finished_turn, line.turn
            )  # what the agent says itself is its answer; nothing follows it

    def is_cut_by(self, line: LogLine) -> bool:
        """Whether a command has ended the turn, so that no reply will take its place."""
        return isinstance(line, OutboundMessage) and line.kind == "command" and line.turn >= self._turn > 0

    async def mark_stopped(self, turn_text: TurnText, target: PostTarget, rates: Rates) -> None:
        """Say in it that the turn was ended; once, and if that goes wrong it stays as it is."""
        text = turn_text.text.strip() if turn_text.turn == self._turn else ""
        pieces = await render_off_loop(text, lambda: self._platform.render(f"{text}\n\n{STOPPED}".strip()))
        post = self._build_post(target, pieces[0], self._turn)
        with contextlib.suppress(NotDelivered):
            if await self._deliveries.reserve_call(self._lease.chat, rates.edits) == 0:
                await self._send_or_edit(self._turn, post)
        self.forget()

    def forget(self) -> None:
        """The message is a reply by now, or gone; more of the same turn gets a new one."""
        self._turn, self._id, self._shown, self._plain = 0, "", None, False
