"""The message of a chat that a running turn is streamed into, by edits.

Streaming never delays or doubles a reply: a failure stops it for some seconds or for that turn, and
the reply comes as without. The platform's id of the message is kept with the chat, so that another
gateway or attempt goes on with the same one, until the reply's first piece replaces it. The
message's key is kept before it is sent: by it a platform that has keys or a look-up tells the id if
the sender died."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from gateway.delivery.chat_lease import ChatLease
from gateway.delivery.line_posts import STOPPED, Render, render_off_loop
from gateway.delivery.platform_calls import ChannelFault, DeliveryContext, Rates, T, spare
from gateway.platform.protocol import (
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    Throttled,
)
from shared.chatlog.live_text import LiveText
from shared.ids import nonce
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage
from shared.metrics import DELIVERY_UNKNOWN
from shared.store.delivery.deliveries import DeliveryState

AFTER_S: Final = 0.6  # a turn that is answered sooner is not streamed: one message, no edit
CALL_S: Final = 5.0  # the longest time an edit may take, for the reply may be waiting for it
RETRY_S: Final = 5.0  # pause after the platform accepted nothing
MORE: Final = " …"  # ends a text that is still being written
PROGRESS_CHARS: Final = 80


class TurnText:
    """The newest turn of which an event came. A new attempt is shown once it has more text than the
    one before it. `streamed` is a turn, and the length of its text that another gateway showed."""

    def __init__(self, *, progress: bool, streamed: tuple[int, int] = (0, 0)) -> None:
        self.turn = 0
        self.ended = False
        self.version = 0  # changes whenever `preview` may change
        self._with_progress = progress
        self._progress = ""
        self._streamed = streamed
        self._note = False  # the progress is in words for people
        self.live = LiveText()

    def apply(self, event: LiveEvent) -> None:
        """Apply one event of the chat. Events of older turns change nothing."""
        if event.turn < self.turn:
            return
        if event.turn > self.turn:
            turn, floor = self._streamed
            self.turn = event.turn
            self.ended = False
            self._progress = ""
            self.live = LiveText(event.turn, floor if turn == event.turn else 0)
        self.version += 1
        match event:
            case TurnEvent(state=state):
                self.ended = state != "started"
            case DeltaEvent(text=text) as delta:
                if self.live.add(delta) and text:
                    self._progress = ""
            case ProgressEvent(text=text, note=note) if note or self._with_progress:
                self._progress = " ".join(text.split())
                self._note = note
            case _:
                pass

    def preview(self, render: Render) -> Piece | None:
        """Return what one message shows now; None = nothing yet. Of a longer text it is the first
        piece, which does not change any more: the others come with the reply."""
        if text := self.live.shown.strip():
            pieces = render(text + MORE)
            return pieces[0] if len(pieces) == 1 else render(text)[0]
        if self._progress and not self.live.floor:
            progress = self._progress.replace("`", "'")
            fits = len(progress) <= PROGRESS_CHARS
            short = progress if fits else progress[: PROGRESS_CHARS - 1] + "…"
            return render(f"*{short}*{MORE}" if self._note else f"*`{short}`*{MORE}")[0]
        return None


class StreamedMessage:
    """The streamed message of one chat. `target` and `rates` are those of its posts."""

    def __init__(self, context: DeliveryContext, lease: ChatLease) -> None:
        self._lease = lease
        self._platform = context.platform
        self._deliveries = context.deliveries
        self._context = context
        self._clock = context.clock
        self._turn, self._id = lease.chat.streamed_message or (0, "")
        # A turn and the key of its message, while it is not known whether the message exists.
        self._pending = lease.chat.pending_stream
        self._shown: Piece | None = None
        self._plain = False
        self._finished_turn = 0  # turns up to this one are not streamed any more
        self._next_at = 0.0
        self._streaming_since: tuple[int, float] = (0, 0.0)  # the turn, and when it was first seen
        self._version = 0

    def due_s(self, text: TurnText, state: DeliveryState) -> float | None:
        """Return in how many seconds the message is to be updated; None = not at all."""
        if not self._platform.abilities.edit_every_s or state.running is None or state.closed:
            return None
        if text.turn != state.running or text.ended or text.turn <= self._finished_turn:
            return None
        if text.version == self._version:
            return None
        now = self._clock.monotonic()
        if self._streaming_since[0] != text.turn:
            self._streaming_since = (text.turn, now)
        begin_at = 0.0 if self._turn == text.turn else self._streaming_since[1] + AFTER_S
        return max(0.0, max(begin_at, self._next_at) - now)

    async def update(self, turn_text: TurnText, target: PostTarget, rates: Rates) -> None:
        """Show the turn's text so far. Raises RedisAway, and LeaseLost when it is in doubt."""
        turn = turn_text.turn
        version = turn_text.version
        piece = await render_off_loop(turn_text.live.shown, lambda: turn_text.preview(self._platform.render))
        if turn_text.turn != turn:
            return  # a new turn began while a thread rendered this one
        if piece is None or (piece == self._shown and self._turn == turn):
            self._version = version
            return
        post = self._build_post(target, piece, turn)
        wait_s = await self._wait_for_rates(turn, post, rates, (turn, turn_text.live.floor))
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
        except NotDelivered as exc:
            # An edit may be made again, and so may a message that the platform knows by a key or a
            # look-up. Another one that may exist would be a second message.
            again = self._exists_for(turn) or self._platform.abilities.resend_guard != "nothing"
            unclear = isinstance(exc, MaybeSent) and not isinstance(exc, ChannelFault)
            if isinstance(exc, NotAccepted) or (unclear and again):
                self._next_at = self._clock.monotonic() + RETRY_S
            else:
                self._finished_turn = turn
        else:
            self._shown = piece
            self._version = version

    async def _wait_for_rates(self, turn: int, post: Post, rates: Rates, shown: tuple[int, int]) -> float:
        """Return the seconds until the call may be made, 0 = now. A new message is begun only if
        the budget lasts for an edit too, and its key is recorded first."""
        chat = self._lease.chat
        reserve = self._deliveries.reserve_call
        if self._exists_for(turn):
            return await reserve(chat, spare(rates.edits), shown=shown)
        both = spare([*rates.posts, *rates.edits])
        new = (turn, post.key)
        return await reserve(chat, both, pending_stream=new, shown=shown)

    def _exists_for(self, turn: int) -> bool:
        return self._turn == turn and bool(self._id)

    def _build_post(self, target: PostTarget, piece: Piece, turn: int) -> Post:
        """Return a post with a key of its own: a turn may have a second message, when a notice
        replaced the first. A pending message of the turn keeps its key."""
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
                # A platform with keys may have answered with the earlier message and its older
                # text.
                doubtful = doubtful and self._platform.abilities.resend_guard == "key"
            await self._remember(turn, id)
            if not doubtful:
                return
        await self._call(partial(self._platform.edit, self._id, post))

    async def _look_up(self, post: Post) -> str | None:
        if self._platform.abilities.resend_guard != "look-up":
            return None
        return await self._call(partial(self._platform.find, post))

    async def _send(self, turn: int, post: Post, *, doubtful: bool) -> str:
        self._pending = turn, post.key
        try:
            return await self._call(partial(self._platform.send, post))
        except MaybeSent:
            raise
        except NotDelivered:
            # This try surely showed nothing. An earlier, doubtful one may have.
            self._pending = self._pending if doubtful else None
            raise

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._context.call(self._lease, call, within_s=CALL_S)

    async def _remember(self, turn: int, id: str) -> None:
        self._turn = turn
        self._id = id
        self._pending = None
        await self._deliveries.save_streamed_message(self._lease.chat, turn, id)

    async def id_to_replace(self, line: LogLine, post: Post, rates: Rates) -> str | None:
        """Return the id of the message that the first post of a line replaces, if any. While it is
        unclear whether it exists, the platform is asked, or given this post under its key. Raises
        NotDelivered, RedisAway, LeaseLost."""
        if self._pending is not None and self._belongs_to(line, self._pending[0]):
            if not self._exists_for(self._pending[0]):
                await self._resolve_pending(*self._pending, post, rates)
        return self._id if self._id and self._belongs_to(line, self._turn) else None

    async def _resolve_pending(self, turn: int, key: str, post: Post, rates: Rates) -> None:
        guard = self._platform.abilities.resend_guard
        same = msgspec.structs.replace(post, key=key, buttons=(), reply_to=None)
        id = None
        try:
            if guard == "nothing":
                # The unfinished message may stay above the reply, which is sent as a new one.
                DELIVERY_UNKNOWN.labels(self._platform.name).inc()
            elif guard == "look-up":
                id = await self._look_up(same)
            elif guard == "key":
                if (wait_s := await self._deliveries.reserve_call(self._lease.chat, rates.posts)) > 0:
                    raise Throttled(wait_s)
                id = await self._send(turn, same, doubtful=True)
        except (MarkupRefused, PostRefused):
            pass  # the unfinished message, if any, stays: better than a reply that never comes
        self._pending = None
        if id is not None:
            await self._remember(turn, id)

    @staticmethod
    def _belongs_to(line: LogLine, turn: int) -> bool:
        return isinstance(line, OutboundMessage) and line.turn == turn and line.kind != "command"

    def line_finished(self, line: LogLine) -> None:
        """Forget the message if this line, delivered or given up, has replaced it."""
        if not isinstance(line, OutboundMessage):
            return
        if self._pending is not None and self._belongs_to(line, self._pending[0]):
            self._pending = None
        if self._id and self._belongs_to(line, self._turn):
            self.forget()
        if line.sent_by_tool or line.kind not in ("notice", "command"):
            # What the agent sends itself is the turn's answer: no other reply would replace a
            # message.
            self._finished_turn = max(self._finished_turn, line.turn)

    async def mark_stopped(self, line: LogLine, turn_text: TurnText, target: PostTarget, rates: Rates) -> None:
        """Write into the message that its turn was stopped, once, if this line is of a command that
        did: no reply will replace the message."""
        if not isinstance(line, OutboundMessage) or line.kind != "command" or self._turn == 0:
            return
        if line.turn < self._turn:
            return
        live = turn_text.live
        text = (live.shown or live.text).strip() if turn_text.turn == self._turn else ""
        pieces = await render_off_loop(text, lambda: self._platform.render(f"{text}\n\n{STOPPED}".strip()))
        post = self._build_post(target, pieces[0], self._turn)
        with contextlib.suppress(NotDelivered):
            if await self._deliveries.reserve_call(self._lease.chat, rates.edits) == 0:
                await self._send_or_edit(self._turn, post)
        self.forget()

    def forget(self) -> None:
        """Drop the message: it is a reply by now, or deleted. More text gets a new one."""
        self._turn = 0
        self._id = ""
        self._shown = None
        self._plain = False
