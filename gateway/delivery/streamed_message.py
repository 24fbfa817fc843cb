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

from gateway.delivery.chat_lease import Hold
from gateway.delivery.line_posts import STOPPED
from gateway.delivery.platform_calls import Calls
from gateway.delivery.rates import Rates, spare
from gateway.delivery.rendering import rendered
from gateway.delivery.turn_text import Stream
from gateway.platform.protocol import (
    MarkupRefused,
    NotAccepted,
    NotDelivered,
    Piece,
    Place,
    Platform,
    Post,
    PostRefused,
    Throttled,
    Unclear,
)
from shared.clock import Clock
from shared.ids import nonce
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.delivery.deliveries import Deliveries, Look

AFTER_S: Final = 0.6
"""A turn that is answered within so long is not streamed: one message, no edit."""

CALL_S: Final = 5.0
"""An edit has at most so long: the reply may wait behind it."""

AWAY_S: Final = 5.0
"""Next try after the platform took nothing."""


class Bubble:
    """The one of a chat. `place` and `rates` are those of its posts."""

    def __init__(
        self,
        hold: Hold,
        platform: Platform,
        deliveries: Deliveries,
        calls: Calls,
        *,
        clock: Clock,
    ) -> None:
        self._hold = hold
        self._platform = platform
        self._deliveries = deliveries
        self._calls = calls
        self._clock = clock
        self._turn, self._id = hold.delivery.bubble or (0, "")
        self._meant = hold.delivery.meant  # a turn and the key of a message of which nobody knows whether it is there
        self._shown: Piece | None = None
        self._plain = False
        self._over = 0  # turns up to this one are not streamed any more
        self._next_at = 0.0
        self._first: tuple[int, float] = (0, 0.0)  # the turn that is streamed, and since when
        self._version = 0

    def due_s(self, stream: Stream, look: Look) -> float | None:
        """In how many seconds something is to be shown; None = nothing is."""
        if not self._platform.abilities.edit_every_s or look.running is None or look.closed:
            return None
        if stream.turn != look.running or stream.ended or stream.turn <= self._over or stream.version == self._version:
            return None
        now = self._clock.monotonic()
        if self._first[0] != stream.turn:
            self._first = (stream.turn, now)
        begin_at = 0.0 if self._turn == stream.turn else self._first[1] + AFTER_S
        return max(0.0, max(begin_at, self._next_at) - now)

    async def show(self, stream: Stream, place: Place, rates: Rates) -> None:
        """Show how far the turn is. Raises RedisAway, and LeaseLost when the lease is in doubt."""
        turn, version = stream.turn, stream.version
        piece = await rendered(stream.text, lambda: stream.shown(self._platform.render))
        if stream.turn != turn:
            return
        if piece is None or (piece == self._shown and self._turn == turn):
            self._version = version
            return
        post = self._post(place, piece, turn)
        wait_s = await self._may_show(turn, post, rates)
        self._next_at = self._clock.monotonic() + (wait_s or self._platform.abilities.edit_every_s)
        if wait_s > 0:
            return
        try:
            await self._put(turn, post)
        except Throttled as throttled:
            self._next_at = self._clock.monotonic() + throttled.retry_after_s
            if throttled.whole_bot:
                await self._deliveries.pause(throttled.retry_after_s)
        except MarkupRefused:
            self._over = turn if self._plain else self._over
            self._plain = True
        except NotAccepted:
            self._next_at = self._clock.monotonic() + AWAY_S
        except NotDelivered:
            self._over = turn
        else:
            self._shown, self._version = piece, version

    async def _may_show(self, turn: int, post: Post, rates: Rates) -> float:
        """A message to stream into is begun only if it could be edited, too; its key is kept ahead
        of it."""
        if self._is_there(turn):
            return await self._deliveries.may_edit(self._hold.delivery, spare(rates.edits))
        first = spare([*rates.posts, *rates.edits])
        return await self._deliveries.may_edit(self._hold.delivery, first, meant=(turn, post.key))

    def _is_there(self, turn: int) -> bool:
        return self._turn == turn and bool(self._id)

    def _post(self, place: Place, piece: Piece, turn: int) -> Post:
        """With a key that no other has: a turn may have a second message, when a notice took the
        first one's place."""
        key = f"{self._hold.session}:bubble:{nonce()}"
        if self._meant is not None and self._meant[0] == turn:
            key = self._meant[1]
        return Post(place=place, key=key, piece=piece, as_plain=self._plain)

    async def _put(self, turn: int, post: Post) -> None:
        if not self._is_there(turn):
            doubtful = self._meant == (turn, post.key)
            id = await self._look(post) if doubtful else None
            if id is None:
                id = await self._send(turn, post, doubtful=doubtful)
                doubtful = doubtful and self._platform.abilities.after_unclear == "key"  # it may have another text
            await self._found(turn, id)
            if not doubtful:
                return
        await self._calls.make(self._hold, partial(self._platform.edit, self._id, post), within_s=CALL_S)

    async def _look(self, post: Post) -> str | None:
        if self._platform.abilities.after_unclear != "look-up":
            return None
        return await self._calls.make(self._hold, partial(self._platform.find, post), within_s=CALL_S)

    async def _send(self, turn: int, post: Post, *, doubtful: bool) -> str:
        self._meant = turn, post.key
        try:
            return await self._calls.make(self._hold, partial(self._platform.send, post), within_s=CALL_S)
        except Unclear:
            raise
        except NotDelivered:
            self._meant = self._meant if doubtful else None
            raise

    async def _found(self, turn: int, id: str) -> None:
        self._turn, self._id, self._meant = turn, id, None
        await self._deliveries.bubble(self._hold.delivery, turn, id)

    async def place_of(self, line: LogLine, post: Post, rates: Rates) -> str | None:
        """The id of the message that the first post of a line takes the place of; None = it gets
        one of its own. Where nobody knows whether there is such a message the platform is asked, or
        given this post under its key. Raises NotDelivered, RedisAway, LeaseLost."""
        if self._meant is not None and self._is_of(line, self._meant[0]) and not self._is_there(self._meant[0]):
            await self._settle(*self._meant, post, rates)
        return self._id if self._id and self._is_of(line, self._turn) else None

    async def _settle(self, turn: int, key: str, post: Post, rates: Rates) -> None:
        offers = self._platform.abilities.after_unclear
        same, id = msgspec.structs.replace(post, key=key, buttons=(), reply_to=None), None
        try:
            if offers == "look-up":
                id = await self._look(same)
            elif offers == "key":
                if (wait_s := await self._deliveries.may_edit(self._hold.delivery, rates.posts)) > 0:
                    raise Throttled(wait_s)
                id = await self._send(turn, same, doubtful=True)
        except (MarkupRefused, PostRefused):
            pass  # so be it: the unfinished words stay
        self._meant = None
        if id is not None:
            await self._found(turn, id)

    @staticmethod
    def _is_of(line: LogLine, turn: int) -> bool:
        return isinstance(line, OutboundMessage) and line.turn == turn and line.kind != "command"

    def used(self, line: LogLine) -> None:
        """A line of the chat was delivered, or cannot be."""
        if not isinstance(line, OutboundMessage):
            return
        if self._meant is not None and self._is_of(line, self._meant[0]):
            self._meant = None
        if self._id and self._is_of(line, self._turn):
            self.forget()
        if line.said or line.kind not in ("notice", "command"):
            self._over = max(self._over, line.turn)  # what the agent says itself is its answer; nothing follows it

    def is_cut_by(self, line: LogLine) -> bool:
        """Whether a command has ended the turn, so that no reply will take its place."""
        return isinstance(line, OutboundMessage) and line.kind == "command" and line.turn >= self._turn > 0

    async def end(self, stream: Stream, place: Place, rates: Rates) -> None:
        """Say in it that the turn was ended; once, and if that goes wrong it stays as it is."""
        text = stream.text.strip() if stream.turn == self._turn else ""
        pieces = await rendered(text, lambda: self._platform.render(f"{text}\n\n{STOPPED}".strip()))
        post = self._post(place, pieces[0], self._turn)
        with contextlib.suppress(NotDelivered):
            if await self._deliveries.may_edit(self._hold.delivery, rates.edits) == 0:
                await self._put(self._turn, post)
        self.forget()

    def forget(self) -> None:
        """The message is a reply by now, or gone; more of the same turn gets a new one."""
        self._turn, self._id, self._shown, self._plain = 0, "", None, False
