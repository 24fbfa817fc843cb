"""The way in: a message is durable and due, once, before anybody is told that it was received."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.errors import BadInput, Refused, TooBig
from shared.ids import session_id
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.inbound import RESERVED_CHANNELS, TEXT_LIMIT_BYTES, InboundMessage
from shared.messages.outbound import SaidLine
from shared.settings import Settings
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.scripts import load

DAY_MS: Final = 86_400_000
TITLE_LIMIT: Final = 60
TURNS: Final = "turns"
SHARED_SCOPE: Final = "shared"

MemoryScope = Literal["chat", "user", "shared"]


class Accepted(msgspec.Struct, frozen=True):
    """The durable answer to a message: its number in the session, how many wait before it, its line in the log."""

    turn: int
    ahead: int
    seq: int
    duplicate: bool


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps of the way in, and how long things are remembered."""

    cap: int = 50
    sessions_cap: int = 100_000
    seen_days: int = 2
    session_days: int = 365
    log_days: int = 30
    memory_scope: MemoryScope = "chat"
    idle_ms: int = 0

    @classmethod
    def of(cls, settings: Settings) -> InboxLimits:
        """What the settings say."""
        return cls(
            cap=settings.inbox.cap,
            sessions_cap=settings.inbox.sessions_cap,
            log_days=settings.web.log_days,
            memory_scope=settings.memory.scope,
            idle_ms=int(settings.memory.idle_s * 1000),
        )


def scope_of(policy: MemoryScope, message: InboundMessage) -> str:
    """Whose memory a message's chat has; `""` for the chat's own.

    Where several people talk (metadata `group`), a person's memory is not brought: the others would read it.
    """
    if policy == "shared":
        return SHARED_SCOPE
    if policy == "user" and message.metadata.get("group") != "1":
        return f"user:{session_id(message.channel, message.sender_id)}"
    return ""


class Inbox:
    """Takes messages for sessions."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self._ingest = load("ingest")
        self._stop = load("stop")

    async def ingest(
        self,
        message: InboundMessage,
        *,
        show: SaidLine | None = None,
        principal: str | None = None,
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Store a message and make its session due. The same `message.id` again gets the first answer again.

        `show` becomes a line of the chat's log; with `principal` the chat is listed among that person's chats.
        Raises BadInput (reserved channel), TooBig, Refused (`inbox_full`, `overloaded`), RedisAway.
        """
        if message.channel in RESERVED_CHANNELS:
            raise BadInput("reserved_channel", f"channel {message.channel!r} is Shoal's own; use a channel of yours")
        size = len(message.content.encode())
        if size > TEXT_LIMIT_BYTES:
            raise TooBig(size, TEXT_LIMIT_BYTES)
        session, limits = message.session, self._limits
        crash_point("before_ingest")
        status, turn, ahead, seq = await self._client.run(
            self._ingest,
            [
                keys.inbox(session), keys.session(session), keys.queue(TURNS), keys.wake(TURNS),
                keys.outbox(session), keys.live(session),
                keys.chats(message.channel, principal) if principal is not None else "",
            ],
            [
                encode(message), SCHEMA_VERSION, f"{message.chat_id}/{message.id}", keys.seen(message.channel),
                limits.seen_days, keys.turn(session), limits.cap, limits.sessions_cap, limits.session_days * DAY_MS,
                limits.log_days * DAY_MS, encode(show) if show is not None else b"", message.chat_id,
                _title(message.content), scope_of(limits.memory_scope, message),
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        crash_point("after_ingest")
        if status == -1:
            raise Refused(
                "inbox_full", f"{limits.cap} messages already wait in this chat; please wait for answers first", 10
            )
        if status == -2:
            raise Refused("overloaded", "too many chats are waiting just now; please try again in a minute", 60)
        return Accepted(turn, ahead, seq, duplicate=status == 0)

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """Ask for the end of `turn`, or of whatever is at the head of `session`; its number.

        None when nothing runs or waits, or when `turn` is over already: a late stop never hits the next turn.
        """
        stopped: int = await self._client.run(
            self._stop,
            [
                keys.session(session), keys.inbox(session), keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS),
            ],
            [keys.turn(session), keys.CONTROL, "" if turn is None else turn],
        )  # fmt: skip
        return stopped or None


def _title(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= TITLE_LIMIT else line[: TITLE_LIMIT - 1].rstrip() + "…"
