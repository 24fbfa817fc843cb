"""The message of a chat that a running turn is streamed into, by edits, as often as the platform takes them.

Nothing here delays or doubles a reply: whatever goes wrong ends the streaming of that turn, and its reply comes as it
would without. The platform's id of the message is kept with the chat, so that another gateway, or another attempt at
the turn, goes on with the same one; the first piece of the reply takes its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.calls import Calls
from gateway.hold import Hold
from gateway.platform import MarkupRefused, NotAccepted, NotDelivered, Piece, Place, Platform, Post, Throttled
from gateway.posts import STOPPED
from gateway.stream import Stream
from shared.clock import Clock
from shared.ids import nonce
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.deliveries import Deliveries, Look, RateKey

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

    async def show(self, stream: Stream, place: Place, rates: Sequence[RateKey]) -> None:
        """Show how far the turn is. Raises RedisAway, and LeaseLost when the lease is in doubt."""
        version, piece = stream.version, stream.shown(self._platform.render)
        if piece is None or (piece == self._shown and self._turn == stream.turn):
            self._version = version
            return
        wait_s = await self._deliveries.may_edit(self._hold.delivery, rates)
        self._next_at = self._clock.monotonic() + (wait_s or self._platform.abilities.edit_every_s)
        if wait_s > 0:
            return
        try:
            await self._put(stream.turn, self._post(place, piece))
        except Throttled as throttled:
            self._next_at = self._clock.monotonic() + throttled.retry_after_s
            if throttled.whole_bot:
                await self._deliveries.pause(throttled.retry_after_s)
        except MarkupRefused:
            self._over = stream.turn if self._plain else self._over
            self._plain = True
        except NotAccepted:
            self._next_at = self._clock.monotonic() + AWAY_S
        except NotDelivered:
            self._over = stream.turn
        else:
            self._shown, self._version = piece, version

    def _post(self, place: Place, piece: Piece) -> Post:
        """With a key that no other has: a turn may have a second message, when a notice took the first one's place."""
        return Post(place=place, key=f"{self._hold.session}:bubble:{nonce()}", piece=piece, as_plain=self._plain)

    async def _put(self, turn: int, post: Post) -> None:
        if self._turn == turn and self._id:
            await self._calls.make(self._hold, partial(self._platform.edit, self._id, post), within_s=CALL_S)
            return
        id = await self._calls.make(self._hold, partial(self._platform.send, post), within_s=CALL_S)
        self._turn, self._id = turn, id
        await self._deliveries.bubble(self._hold.delivery, turn, id)

    def of(self, line: LogLine) -> str | None:
        """The id of the message that a line takes the place of; None = it gets one of its own."""
        if isinstance(line, OutboundMessage) and self._id and line.turn == self._turn and line.kind != "command":
            return self._id
        return None

    def used(self, line: LogLine) -> None:
        """A line of the chat was delivered, or cannot be."""
        if not isinstance(line, OutboundMessage):
            return
        if self.of(line) is not None:
            self.forget()
        if line.said or line.kind not in ("notice", "command"):
            self._over = max(self._over, line.turn)  # what the agent says itself is its answer; nothing follows it

    def is_cut_by(self, line: LogLine) -> bool:
        """Whether a command has ended the turn, so that no reply will take its place."""
        return isinstance(line, OutboundMessage) and line.kind == "command" and line.turn >= self._turn > 0

    async def end(self, stream: Stream, place: Place, rates: Sequence[RateKey]) -> None:
        """Say in it that the turn was ended; once, and if that goes wrong it stays as it is."""
        text = stream.text.strip() if stream.turn == self._turn else ""
        piece = self._platform.render(f"{text}\n\n{STOPPED}".strip())[0]
        post = self._post(place, piece)
        with contextlib.suppress(NotDelivered):
            if await self._deliveries.may_edit(self._hold.delivery, rates) == 0:
                await self._put(self._turn, post)
        self.forget()

    def forget(self) -> None:
        """The message is a reply by now, or gone; more of the same turn gets a new one."""
        self._turn, self._id, self._shown, self._plain = 0, "", None, False
