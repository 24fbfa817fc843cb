"""The inbox: a message is durable and due, once, before its sender is told that it was accepted."""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import BadInput, Refused, TooBig
from shared.ids import KEEP_MS, is_ephemeral, session_id
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.inbound import RESERVED_CHANNELS, TEXT_LIMIT_BYTES, InboundMessage
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.schedule import is_background
from shared.settings import Settings
from shared.settings.sections.chats import Busy, busy_by_channel, senders_by_channel
from shared.store import keys
from shared.store.client.redis_client import RedisClient

DAY_MS: Final = 86_400_000
TITLE_LIMIT: Final = 60
TURNS: Final = "turns"
SHARED_SCOPE: Final = "shared"
ECHO_CHARS: Final = 20
"""A shorter text may well be written by two people."""
BOT_LOOP: Final = "bot_loop"
OVERLOADED: Final = "overloaded"
"""The whole fleet is overloaded, or the store is full: the same message may be sent again."""

JOINS: Final = "joins"
"""Metadata: with "1" a message joins others of its kind that wait right after it, at the start
of its turn."""

REJECTED: Final = (
    "I am still busy, so I have not read this message. Please send it again when I have answered "
    "(waiting before it: {ahead})."
)

MemoryScope = Literal["chat", "user", "shared"]


class Accepted(msgspec.Struct, frozen=True):
    """Result of an accepted message: its number in the session, how many wait before it, its line
    in the log.

    `rejected`: it is not answered, and its chat was told so; its number is 0 then.
    """

    turn: int
    ahead: int
    seq: int
    duplicate: bool
    rejected: bool = False


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the inbox, and how long things are kept. See `InboxSettings`; 0 is no limit."""

    cap: int = 50
    sessions_cap: int = 100_000
    sender_per_minute: int = 0
    sender_by_channel: dict[str, int] = {}
    bot_turns: int = 0
    bot_window_ms: int = 300_000
    seen_days: int = 2
    session_days: int = 365
    log_days: int = 30
    memory_scope: MemoryScope = "chat"
    idle_ms: int = 0
    busy: Busy = "queue"
    busy_by_channel: dict[str, Busy] = {}
    merge_ms: int = 2000

    @classmethod
    def of(cls, settings: Settings) -> InboxLimits:
        """Build the limits from the settings."""
        return cls(
            cap=settings.inbox.cap,
            sessions_cap=settings.inbox.sessions_cap,
            sender_per_minute=settings.inbox.sender_per_minute,
            sender_by_channel=senders_by_channel(settings.channels),
            bot_turns=settings.inbox.bot_turns,
            bot_window_ms=int(settings.inbox.bot_window_s * 1000),
            log_days=settings.web.log_days,
            memory_scope=settings.memory.scope,
            idle_ms=int(settings.memory.idle_s * 1000),
            busy=settings.inbox.busy,
            busy_by_channel=busy_by_channel(settings.channels),
            merge_ms=int(settings.inbox.merge_s * 1000),
        )

    def of_sender(self, channel: str) -> int:
        """Return how many messages a minute one sender may write in this channel."""
        return self.sender_by_channel.get(channel, self.sender_per_minute)

    def keep_ms(self, session: str) -> int:
        """Return how long a session is kept after its last message."""
        return KEEP_MS if is_ephemeral(session) else self.session_days * DAY_MS


def scope_of(policy: MemoryScope, message: InboundMessage) -> str:
    """Return the memory scope that a message gives its chat; `""` for the chat's own.

    Where several people talk (metadata `group`), a person's own memory is not used, because the
    others would read it. A sender from outside (metadata `outside`) brings none and leaves the
    chat's as it is: `"="`.
    """
    if policy == "shared":
        return SHARED_SCOPE
    if policy == "user" and message.metadata.get("outside") == "1":
        return "="
    if policy == "user" and message.metadata.get("group") != "1":
        return f"user:{session_id(message.channel, message.sender_id)}"
    return ""


def check_message(message: InboundMessage) -> None:
    """Check channel and size. Raises BadInput for a channel that only Shoal itself writes,
    TooBig for a text over the limit."""
    if message.channel in RESERVED_CHANNELS:
        raise BadInput("reserved_channel", f"channel {message.channel!r} is Shoal's own; use a channel of yours")
    size = len(message.content.encode())
    if size > TEXT_LIMIT_BYTES:
        raise TooBig(size, TEXT_LIMIT_BYTES)


class Inbox:
    """Accepts messages for sessions."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def ingest(
        self,
        message: InboundMessage,
        *,
        log_line: LogLine | None = None,
        principal: str | None = None,
        internal: bool = False,
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Store a message and make its session due. The same `message.id` again gets the first
        answer again.

        `log_line` becomes a line of the chat's log; with `principal` the chat is listed among that
        person's chats. An `internal` message is Shoal's own or an operator's: limits of senders and
        the guard against loops ignore it, and it always waits for its turn. Metadata `bot` = `"1"`
        marks a message that no person wrote. While a turn runs, the `busy` setting of the chat or
        the channel decides what happens to a message.

        Raises BadInput (reserved channel), TooBig, Refused (`sender_limit`, `bot_loop`,
        `inbox_full`, `overloaded`), RedisAway.
        """
        return await self._ask(message, log_line, principal, internal=internal, retry_for_s=retry_for_s)

    async def admit(self, message: InboundMessage, *, retry_for_s: float = 0.0) -> None:
        """Count a message that is answered without a turn. Raises as `ingest`, except for the
        limits of inbox and queue; a message that is known already passes."""
        await self._ask(message, None, None, only_count=True, retry_for_s=retry_for_s)

    async def notify_refusal(self, message: InboundMessage, refused: Refused | TooBig) -> bool:
        """Write into the chat's log that a message was refused: at most once a minute to one
        sender and in one chat, and once a pause that bots are paused. Return whether it was
        written now. Raises RedisAway, Refused (the store is full)."""
        session, limits = message.session, self._limits
        line = OutboundMessage(
            content=_notice(refused), turn=0, kind="notice", at=message.timestamp, traceparent=message.traceparent
        )
        written: int = await self._client.run(
            "turns/slow_down",
            [
                keys.session(session), keys.outbox(session), keys.live(session),
                keys.brake(f"told:{_sender(message)}"), keys.brake(f"told:chat:{session}"),
            ],
            [encode(line), limits.session_days * DAY_MS, limits.log_days * DAY_MS, int(refused.code == BOT_LOOP)],
        )  # fmt: skip
        return bool(written)

    async def _ask(
        self,
        message: InboundMessage,
        show: LogLine | None,
        principal: str | None,
        *,
        internal: bool = False,
        only_count: bool = False,
        retry_for_s: float,
    ) -> Accepted:
        check_message(message)
        session, limits = message.session, self._limits
        # Tests kill the process on both sides of the call: a sender that repeats gets the first
        # answer.
        crash_point("before_ingest")
        status, turn, ahead, seq = await self._client.run(
            "turns/ingest",
            [
                keys.inbox(session), keys.session(session), keys.queue(TURNS), keys.wake(TURNS),
                keys.outbox(session), keys.live(session),
                keys.chats(message.channel, principal) if principal is not None else "",
                keys.brake(_sender(message)), keys.leases(TURNS),
            ],
            [
                encode(message), SCHEMA_VERSION, f"{message.chat_id}/{message.id}", keys.seen(message.channel),
                limits.seen_days, keys.turn(session), limits.cap, limits.sessions_cap, limits.keep_ms(session),
                limits.log_days * DAY_MS, encode(show) if show is not None else b"", message.chat_id,
                _title(message.content), scope_of(limits.memory_scope, message), int(only_count),
                limits.of_sender(message.channel), limits.bot_turns, limits.bot_window_ms,
                "" if internal else _writer(message), _echo(message.content),
                "" if internal else limits.busy_by_channel.get(message.channel, limits.busy),
                int(message.metadata.get(JOINS) == "1"), limits.merge_ms, keys.CONTROL, encode(_rejection(message)),
                fair_key(message, internal=internal),
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        crash_point("after_ingest")
        if status < 0:
            raise self._refusal(status, message.channel, wait_ms=turn)
        return Accepted(turn, ahead, seq, duplicate=status == 0, rejected=status == 2)

    def _refusal(self, status: int, channel: str, *, wait_ms: int) -> Refused:
        limits = self._limits
        match status:
            case -1:
                waiting = f"{limits.cap} messages already wait in this chat; please wait for answers first"
                return Refused("inbox_full", waiting, 10)
            case -2:
                return Refused(OVERLOADED, "too many chats are waiting just now; please try again in a minute", 60)
            case -3:
                often = f"more than {limits.of_sender(channel)} messages in a minute; please slow down"
                return Refused("sender_limit", often, max(1.0, wait_ms / 1000))
            case _:
                within = f"{limits.bot_turns} messages of bots within {limits.bot_window_ms / 60_000:g} minutes"
                paused = f"{within} and no person between them; bots are not answered here until a person writes"
                return Refused(BOT_LOOP, paused, limits.bot_window_ms / 1000)

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """Ask for the end of `turn`, or of the turn at the head of `session`; return its number.

        None when nothing runs or waits, or when `turn` is over already: a late stop never hits
        the next turn.
        """
        stopped: int = await self._client.run(
            "turns/stop",
            [
                keys.session(session), keys.inbox(session), keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS),
            ],
            [keys.turn(session), keys.CONTROL, "" if turn is None else turn],
        )  # fmt: skip
        return stopped or None


def _sender(message: InboundMessage) -> str:
    """Hash one person in one channel: an id may be long, and a phone number."""
    return hashlib.sha256(f"{message.channel}\0{message.sender_id}".encode()).hexdigest()[:32]


def fair_key(message: InboundMessage, *, internal: bool = False) -> str:
    """Return the fair key of a message's turn: a person's hash, BACKGROUND for nobody's, or `""`
    for its chat's own."""
    if is_background(message):
        return keys.BACKGROUND
    return "" if internal or message.metadata.get("group") == "1" else _sender(message)[:16]


def _writer(message: InboundMessage) -> str:
    return "bot" if message.metadata.get("bot") == "1" else "person"


def _echo(content: str) -> str:
    """Return the hash by which our own text is recognised when it comes back; `""` if it is too
    short."""
    return hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest() if len(content) >= ECHO_CHARS else ""


def _notice(refused: Refused | TooBig) -> str:
    text = refused.message[:1].upper() + refused.message[1:]
    if isinstance(refused, TooBig):
        return f"{text}. It was not read."
    return f"{text}. What came too much was not read." if refused.code != BOT_LOOP else f"{text}."


def _rejection(message: InboundMessage) -> OutboundMessage:
    return OutboundMessage(
        content=REJECTED,
        turn=0,
        in_reply_to=(message.id,),
        kind="notice",
        at=message.timestamp,
        traceparent=message.traceparent,
    )


def _title(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= TITLE_LIMIT else line[: TITLE_LIMIT - 1].rstrip() + "…"
