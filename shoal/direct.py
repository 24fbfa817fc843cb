"""Asks Shoal from Python: one message in, its answer out, through the inbox as every message."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import Final, Literal

from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, RedisAway, ShoalError
from shared.ids import session_id, split_session
from shared.messages.inbound import InboundMessage
from shared.messages.live import DeltaEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.settings import Settings, load, redis_url
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.tasks import cancel_all

SENDER: Final = "user"
OWN_CHANNEL: Final = "cli"
"""Its chats are the caller's own; those of other channels are some person's."""

TIMEOUT_S: Final = 900.0
LOOK_EVERY_S: Final = 5.0
"""Pub/sub may lose events, so the log is read after this time without one."""

STORE_PATIENCE_S: Final = 10.0
"""A message that cannot be stored is retried for this time."""

LOG_LINES: Final = 2000
"""More lines than the log of a chat ever has."""

OnDelta = Callable[[DeltaEvent], object]

_ENDS: Final = ("reply", "stopped", "apology")
"""Kinds of lines that end a turn."""


class NotAnswered(ShoalError):
    """The message has no answer and will not get one. `kind` says why; `text` is what the chat got
    instead.

    `apology`: it could not be answered. `stopped`: a person stopped it, `text` is the answer until then. `dropped`:
    the conversation was ended or forgotten before its turn came.
    """

    def __init__(self, kind: Literal["apology", "stopped", "dropped"], text: str, message_id: str) -> None:
        super().__init__(f"message {message_id!r} got no answer ({kind}); say it again if it still matters")
        self.kind = kind
        self.text = text
        self.message_id = message_id


class AnswerLate(ShoalError, TimeoutError):
    """The message is durable and will be answered in its chat, but not within `timeout_s`."""

    def __init__(self, message_id: str, timeout_s: float) -> None:
        super().__init__(f"message {message_id!r} has no answer after {timeout_s:g} s; its chat will have it later")
        self.message_id = message_id


async def process_direct(
    content: str,
    session_key: str = "cli:direct",
    channel: str = "cli",
    chat_id: str = "direct",
    *,
    settings: Settings | None = None,
    client: RedisClient | None = None,
    timeout_s: float = TIMEOUT_S,
    on_delta: OnDelta | None = None,
) -> str:
    """Send a message to a chat, and return the text of its answer. Calls on one session are
    answered in order.

    `session_key` is `channel:chat_id`, or a thread of it, `channel:chat_id#thread`. A `/command` is
    a message like any other here: commands are answered by gateways, and this goes past them, into
    the inbox. `on_delta` gets the growing answer; an event that is `full` replaces the text before
    it. Without a `client` one is made for this call, from `settings`; those are by default what
    every process reads.

    Raises BadInput, Refused or RedisAway when the message was not accepted, and after that
    NotAnswered or AnswerLate.
    """
    message = _message(content, session_key, channel, chat_id)
    settings = settings or load()
    if client is not None:
        return await _DirectRequest(client, message, settings, on_delta).ask(timeout_s)
    own = RedisClient(redis_url(settings), name="shoal-direct")
    try:
        return await _DirectRequest(own, message, settings, on_delta).ask(timeout_s)
    finally:
        await own.close()


def _message(content: str, session_key: str, channel: str, chat_id: str) -> InboundMessage:
    if not content.strip():
        raise BadInput("empty", "the message has no text")
    of_channel, of_chat = split_session(session_key)
    thread = of_chat.removeprefix(f"{chat_id}#") if of_chat.startswith(f"{chat_id}#") else None
    if of_channel != channel or (of_chat != chat_id and not thread):
        raise BadInput(
            "bad_session",
            f"session_key {session_key!r} is not of channel {channel!r} and chat_id {chat_id!r}: that would be "
            f"{session_id(channel, chat_id)!r}; make the three agree",
        )
    return InboundMessage(
        channel=channel,
        chat_id=chat_id,
        sender_id=SENDER,
        id=str(uuid.uuid4()),
        content=content,
        timestamp=SYSTEM_CLOCK.now_ms(),
        metadata={} if channel == OWN_CHANNEL else {"outside": "1"},
        thread=thread,
    )


class _DirectRequest:
    """One message on its way to its answer."""

    def __init__(
        self, client: RedisClient, message: InboundMessage, settings: Settings, on_delta: OnDelta | None
    ) -> None:
        self._client = client
        self._message = message
        self._inbox = Inbox(client, InboxLimits.of(settings))
        self._on_delta = on_delta
        self._events: asyncio.Queue[ChatNews | None] = asyncio.Queue()
        self._subscribed = asyncio.Event()

    async def ask(self, timeout_s: float) -> str:
        fanout = Fanout(self._client, on_gap=self._on_gap)
        # Subscribed before the message exists, so that none of its events is missed.
        await fanout.follow_chat(self._message.session, self._events.put_nowait)
        listening = asyncio.create_task(fanout.run(), name="direct")
        try:
            accepted = await self._ingest()
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    return await self._wait_for_answer(accepted)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise AnswerLate(self._message.id, timeout_s) from None
        finally:
            await cancel_all([listening])

    async def _ingest(self) -> Accepted:
        with contextlib.suppress(TimeoutError):  # then the inbox raises what is wrong
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._subscribed.wait()
        message = self._message
        return await self._inbox.ingest(
            message,
            log_line=UserLine(id=message.id, text=message.content, at=message.timestamp),
            internal=True,
            retry_for_s=STORE_PATIENCE_S,
        )

    async def _on_gap(self) -> None:
        self._subscribed.set()
        self._events.put_nowait(None)

    async def _wait_for_answer(self, accepted: Accepted) -> str:
        while True:
            news = await self._next_event()
            if isinstance(news, DeltaEvent) and news.turn == accepted.turn and self._on_delta is not None:
                self._on_delta(news)
            if _may_end_turn(news, accepted.turn):
                with contextlib.suppress(RedisAway):  # a new connection wakes this loop again
                    if (lines := await self._turn_lines(accepted)) is not None:
                        return self._answer_text(lines)

    async def _next_event(self) -> ChatNews | None:
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                return await self._events.get()
        except TimeoutError:
            return None

    async def _turn_lines(self, accepted: Accepted) -> list[OutboundMessage] | None:
        """Return the lines of the turn once it is over, else None. A turn leaves the inbox and
        writes its answer in one step."""
        session, place = self._message.session, f"{accepted.turn}-0"
        if await self._client.command("XRANGE", keys.inbox(session), place, place):
            return None
        rows = await Outbox(self._client).read_after(session, after=accepted.seq, limit=LOG_LINES)
        lines = [row.line for row in rows if isinstance(row.line, OutboundMessage)]
        return [line for line in lines if line.turn == accepted.turn and (line.sent_by_tool or line.kind in _ENDS)]

    def _answer_text(self, lines: Sequence[OutboundMessage]) -> str:
        """The line that answers the message. One without a word ends a turn in which the agent spoke by its message
        tool: then it is what was said. An apology for a record that cannot be read knows only its turn: then it is the
        last line of the turn."""
        sent_texts = [line.content for line in lines if line.sent_by_tool]
        ends = [line for line in lines if not line.sent_by_tool]
        answers = [line for line in ends if self._message.id in line.in_reply_to] or ends
        if not answers:
            raise NotAnswered("dropped", "", self._message.id)
        answer = answers[-1]
        if answer.kind in ("apology", "stopped"):
            raise NotAnswered(answer.kind, answer.content, self._message.id)
        return answer.content or "\n\n".join(filter(None, sent_texts))


def _may_end_turn(news: ChatNews | None, turn: int) -> bool:
    """Return whether the turn may have ended. Silence, a new connection and the end of another turn
    count too: `/new` drops the turns that wait."""
    match news:
        case None:
            return True
        case TurnEvent(state=state):
            return state != "started"
        case NumberedLine(line=OutboundMessage() as line):
            return line.turn >= turn
        case _:
            return False
