"""The inbox: a message is durable and due, once, before its sender is told that it was accepted."""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import BadInput, Refused, TooBig
from shared.ids import API, KEEP_MS, is_ephemeral, session_id
from shared.messages.codec import encode
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
BACKGROUND_RETRY_S: Final = 5.0
ECHO_CHARS: Final = 20  # a shorter text may well be written by two people
BOT_LOOP: Final = "bot_loop"
OVERLOADED: Final = "overloaded"
"""The fleet is overloaded, or the store is full: the same message may be sent again."""

JOINS: Final = "joins"
"""Metadata: with "1" a message and those of its kind right after it begin one turn together."""

ALBUM: Final = "album"
"""Metadata: the platform's id of the album that the message is a part of. Parts that come one soon
after the other begin one turn together."""

REJECTED: Final = (
    "I am still busy, so I have not read this message. Please send it again when I have answered "
    "(waiting before it: {ahead})."
)

MemoryScope = Literal["chat", "user", "shared"]


class Accepted(msgspec.Struct, frozen=True):
    """An accepted message: its number in the session, how many wait before it, its line in the log.
    `rejected`: it is not answered, and its chat was told so; its number is 0 then."""

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
    chats_per_person: int = 0
    api_sessions_per_person: int = 0
    background_at_once: int = 0
    bot_turns: int = 0
    bot_window_ms: int = 300_000
    seen_days: int = 2
    session_days: int = 365
    log_days: int = 365
    memory_scope: MemoryScope = "chat"
    idle_ms: int = 0
    busy: Busy = "queue"
    busy_by_channel: dict[str, Busy] = {}
    merge_ms: int = 2000
    album_ms: int = 1500

    @classmethod
    def of(cls, settings: Settings) -> InboxLimits:
        """Build the limits from the settings."""
        inbox = settings.inbox
        return cls(
            cap=inbox.cap,
            sessions_cap=inbox.sessions_cap,
            sender_per_minute=inbox.sender_per_minute,
            sender_by_channel=senders_by_channel(settings.channels),
            chats_per_person=inbox.chats_per_person,
            api_sessions_per_person=inbox.api_sessions_per_person,
            background_at_once=settings.api.background_at_once,
            bot_turns=inbox.bot_turns,
            bot_window_ms=int(inbox.bot_window_s * 1000),
            log_days=settings.web.log_days,
            memory_scope=settings.memory.scope,
            idle_ms=int(settings.memory.idle_s * 1000),
            busy=inbox.busy,
            busy_by_channel=busy_by_channel(settings.channels),
            merge_ms=int(inbox.merge_s * 1000),
        )

    @property
    def session_ms(self) -> int:
        return self.session_days * DAY_MS

    @property
    def log_ms(self) -> int:
        return self.log_days * DAY_MS

    def of_sender(self, channel: str) -> int:
        """Return how many messages a minute one sender may write in this channel."""
        return self.sender_by_channel.get(channel, self.sender_per_minute)

    def of_chats(self, channel: str) -> int:
        """Return how many chats one person may have in this channel."""
        return self.api_sessions_per_person if channel == API else self.chats_per_person

    def keep_ms(self, session: str) -> int:
        """Return how long a session is kept after its last message."""
        return KEEP_MS if is_ephemeral(session) else self.session_ms


def scope_of(policy: MemoryScope, message: InboundMessage) -> str:
    """Return the memory scope that a message gives its chat; `""` for the chat's own. Where several
    people talk (metadata `group`), a person's own memory is not used, because the others would read
    it. A sender from outside (metadata `outside`) leaves the chat's: `"="`."""
    if policy == "shared":
        return SHARED_SCOPE
    if policy == "user" and message.metadata.get("outside") == "1":
        return "="
    if policy == "user" and message.metadata.get("group") != "1":
        return f"user:{session_id(message.channel, message.sender_id)}"
    return ""


def check_message(message: InboundMessage) -> None:
    """Raise BadInput for a channel that only Shoal itself writes, TooBig for a text over the
    limit."""
    if message.channel in RESERVED_CHANNELS:
        own = f"channel {message.channel!r} is Shoal's own; use a channel of yours"
        raise BadInput("reserved_channel", own)
    size = len(message.content.encode())
    if size > TEXT_LIMIT_BYTES:
        raise TooBig(size, TEXT_LIMIT_BYTES)


_ACCEPTED: Final = (b"accepted", b"known", b"rejected")
"""Outcomes of ingest.lua that are no refusal."""


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
        follows: int | None = None,
        background: str = "",
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Store a message, make its session due. The same `message.id` gets the first answer again.

        `log_line` becomes a line of the chat's log; with `principal` the chat is listed among that
        person's chats. An `internal` message is Shoal's own or an operator's: limits of senders and
        the guard against loops ignore it, and it always waits for its turn. Metadata `bot` = `"1"`
        marks a message that no person wrote. While a turn runs, the `busy` setting of the chat or
        the channel decides what happens to a message. With `follows` it is accepted only while the
        turn of this number is the session's newest one, in the same conversation, and over.
        `background` is the principal whose response in the background it begins; its id is that of
        the message.

        Raises BadInput (reserved channel), TooBig, Refused (`sender_limit`, `chat_limit`,
        `bot_loop`, `inbox_full`, `overloaded`; `moved` and `running` with `follows`;
        `background_limit`), RedisAway."""
        return await self._ask(
            message,
            log_line,
            principal,
            internal=internal,
            follows=follows,
            background=background,
            retry_for_s=retry_for_s,
        )

    async def admit(self, message: InboundMessage, *, principal: str | None = None, retry_for_s: float = 0.0) -> None:
        """Count a message that is answered without a turn; one that is known already passes. Raises
        as `ingest`, except for the limits of inbox and queue."""
        await self._ask(message, None, principal, only_count=True, retry_for_s=retry_for_s)

    async def notify_refusal(self, message: InboundMessage, refused: Refused | TooBig) -> bool:
        """Write into the chat's log that a message was refused: at most once a minute to one
        sender and in one chat, and once a pause that bots are paused. Return whether it was
        written now. Raises RedisAway, Refused (the store is full)."""
        session = message.session
        limits = self._limits
        written = await self._client.run(
            "turns/slow_down",
            session=session,
            sender_brake=keys.brake(f"told:{_sender(message)}"),
            chat_brake=keys.brake(f"told:chat:{session}"),
            line=encode(_log_notice(message, _notice(refused))),
            keep_session_ms=limits.session_ms,
            keep_log_ms=limits.log_ms,
            for_bots=int(refused.code == BOT_LOOP),
        )
        return bool(written)

    async def _ask(
        self,
        message: InboundMessage,
        show: LogLine | None,
        principal: str | None,
        *,
        internal: bool = False,
        only_count: bool = False,
        follows: int | None = None,
        background: str = "",
        retry_for_s: float,
    ) -> Accepted:
        check_message(message)
        session = message.session
        channel = message.channel
        limits = self._limits
        title = " ".join(message.content.split())
        if len(title) > TITLE_LIMIT:
            title = title[: TITLE_LIMIT - 1].rstrip() + "…"
        writer = "" if internal else "bot" if message.metadata.get("bot") == "1" else "person"
        policy = "" if internal else limits.busy_by_channel.get(channel, limits.busy)
        # Tests kill the process on both sides of the call: a sender that repeats gets the first
        # answer.
        crash_point("before_ingest")
        status, turn, ahead, seq = await self._client.run(
            "turns/ingest",
            session=session,
            queue=TURNS,
            chats=keys.chats(channel, principal),
            brake=keys.brake(_sender(message)),
            record=encode(message),
            version=message.version,
            dedupe_id=f"{message.chat_id}/{message.id}",
            seen=keys.seen(channel),
            days=limits.seen_days,
            member=keys.turn(session),
            cap=limits.cap,
            sessions_cap=limits.sessions_cap,
            keep_session_ms=limits.keep_ms(session),
            keep_log_ms=limits.log_ms,
            line=encode(show) if show is not None else b"",
            chat_id=message.chat_id,
            title=title,
            scope=scope_of(limits.memory_scope, message),
            only_count=int(only_count),
            per_minute=limits.of_sender(channel),
            bot_turns=limits.bot_turns,
            bot_window_ms=limits.bot_window_ms,
            writer=writer,
            echo=_echo(message.content),
            busy_policy=policy,
            joins_others=int(message.metadata.get(JOINS) == "1"),
            merge_ms=limits.merge_ms,
            control=keys.CONTROL,
            rejection=encode(_log_notice(message, REJECTED, (message.id,))),
            person=fair_key(message, internal=internal),
            most_chats=-1 if internal else limits.of_chats(channel),
            album=message.metadata.get(ALBUM, ""),
            album_ms=limits.album_ms,
            follows="" if follows is None else follows,
            places=places_of(background),
            most_places=limits.background_at_once,
            response=message.id,
            retry_for_s=retry_for_s,
        )
        crash_point("after_ingest")
        if status not in _ACCEPTED:
            raise self._refusal(status, message.channel, wait_ms=turn)
        return Accepted(turn, ahead, seq, duplicate=status == b"known", rejected=status == b"rejected")

    def _refusal(self, status: bytes, channel: str, *, wait_ms: int) -> Refused:
        limits = self._limits
        match status:
            case b"inbox_full":
                return Refused(
                    "inbox_full", f"{limits.cap} messages already wait in this chat; please wait for answers first", 10
                )
            case b"overloaded":
                return overloaded()
            case b"sender_limit":
                return Refused(
                    "sender_limit",
                    f"more than {limits.of_sender(channel)} messages in a minute; please slow down",
                    max(1.0, wait_ms / 1000),
                )
            case b"moved":
                return Refused("moved", "the conversation went on since then", 0)
            case b"running":
                return Refused("running", "the turn before is not over yet", 1)
            case b"background_limit":
                return background_limit(limits)
            case b"chat_limit":
                return Refused(
                    "chat_limit",
                    f"you have written in {limits.of_chats(channel)} chats within 30 days, "
                    "and more are not allowed; go on in one of them",
                    3600,
                )
            case _:
                minutes = f"{limits.bot_window_ms / 60_000:g} minutes"
                paused = (
                    f"{limits.bot_turns} messages of bots within {minutes} and no person between them; "
                    "bots are not answered here until a person writes"
                )
                return Refused(BOT_LOOP, paused, limits.bot_window_ms / 1000)

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """Ask for the end of `turn`, or of the turn at the head of `session`; return its number.
        None when nothing runs or waits, or `turn` is over: a late stop never hits the next turn."""
        stopped: int = await self._client.run(
            "turns/stop",
            session=session,
            queue=TURNS,
            member=keys.turn(session),
            control=keys.CONTROL,
            turn="" if turn is None else turn,
        )
        return stopped or None


def places_of(principal: str) -> str:
    """Return the key of the principal's unfinished responses in the background; `""` for nobody."""
    return keys.unfinished(principal) if principal else ""


def background_limit(limits: InboxLimits) -> Refused:
    """Return the refusal of one more response in the background."""
    return Refused(
        "background_limit",
        f"{limits.background_at_once} responses of this token in the background are not finished; "
        "wait for one of them, or cancel it",
        BACKGROUND_RETRY_S,
    )


def overloaded() -> Refused:
    """Return the refusal of a message while too many sessions wait."""
    return Refused(OVERLOADED, "too many chats are waiting just now; please try again in a minute", 60)


def _sender(message: InboundMessage) -> str:
    """Hash one person in one channel: an id may be long, and a phone number."""
    return hashlib.sha256(f"{message.channel}\0{message.sender_id}".encode()).hexdigest()[:32]


def fair_key(message: InboundMessage, *, internal: bool = False) -> str:
    """Return the fair key of a turn: a person's hash, BACKGROUND, or `""` for its chat's own."""
    if is_background(message):
        return keys.BACKGROUND
    return "" if internal or message.metadata.get("group") == "1" else _sender(message)[:16]


def _echo(content: str) -> str:
    """Return the hash by which our own text is recognised when it comes back; `""` if too short."""
    if len(content) < ECHO_CHARS:
        return ""
    return hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()


def _notice(refused: Refused | TooBig) -> str:
    text = refused.message[:1].upper() + refused.message[1:]
    if isinstance(refused, TooBig):
        return f"{text}. It was not read."
    return f"{text}. Your last message was not read." if refused.code != BOT_LOOP else f"{text}."


def _log_notice(message: InboundMessage, text: str, in_reply_to: tuple[str, ...] = ()) -> OutboundMessage:
    return OutboundMessage(
        content=text,
        turn=0,
        in_reply_to=in_reply_to,
        kind="notice",
        at=message.timestamp,
        traceparent=message.traceparent,
    )
