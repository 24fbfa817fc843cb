"""Handles the frames of one client."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from gateway.channels.web.http.auth import OWNER, Principals
from gateway.channels.web.http.first_run import FirstRun
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.socket.chat_keeper import FEATURES, ChatKeeper
from gateway.channels.web.socket.feed_reader import PageFeed
from gateway.channels.web.socket.frames import ServerFrame, encode_frame
from gateway.channels.web.socket.page_reader import NewsEncoder, PageReader, Subscriber
from gateway.channels.web.socket.person_feed import FeedFollower
from gateway.ingress.ingest import Ingress
from shared.chatlog.follower import ChatFollower
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, RedisAway
from shared.ids import log_id, session_id
from shared.log import logger
from shared.messages import web
from shared.messages.inbound import DEVICE, DEVICES, TIMEZONE, InboundMessage
from shared.messages.outbound import UserLine
from shared.metrics import MESSAGES_ACCEPTED, MESSAGES_DUPLICATE
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.sessions.chat_search import ChatSearch
from shared.store.sessions.chats import Chats
from shared.store.turns.approvals import REFUSALS, ApprovalAnswer

NAME: Final = "web"  # the channel's name, with which the names of its sessions begin
HISTORY_LINES: Final = 50
HISTORY_CHARS: Final = 1024 * 1024

ANSWERING: Final = "this message is being answered already; /stop ends that"

log = logger("web")


class FrameLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client: `chats` on one socket, `files` of one message, and the seconds for
    which a message is retried while Redis is unavailable."""

    chats: int = 20
    retry_s: float = 5.0
    files: int = 4


class PageServices(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of this process that all sockets of the page use."""

    sink: Ingress
    principals: Principals
    outbox: Outbox
    chats: Chats
    search: ChatSearch
    follower: ChatFollower
    feeds: FeedFollower
    encoder: NewsEncoder
    media: MediaRouter
    limits: FrameLimits
    features: tuple[str, ...] = FEATURES
    presets: tuple[str, ...] = ()
    first_run: FirstRun | None = None
    kill_worker: Callable[[str], Awaitable[None]] | None = None
    """Kills the worker that has the turn of a session; None where that is not offered."""

    clock: Clock = SYSTEM_CLOCK

    def killer_for(self, principal: str) -> Callable[[str], Awaitable[None]] | None:
        """Return what kills the worker of a session, for those who may."""
        return self.kill_worker if principal == OWNER else None


class FrameHandler:
    """Handles the frames of one logged-in client. The principal is part of every chat's name, so a
    client cannot name a chat of another principal."""

    def __init__(
        self,
        subscriber: Subscriber,
        principal: str,
        services: PageServices,
        *,
        timezone: str = "",
        device: str = "",
    ) -> None:
        self._subscriber = subscriber
        self._principal = principal
        self._metadata = {TIMEZONE: timezone} if timezone else {}
        if device in DEVICES:
            self._metadata[DEVICE] = device
        self._services = services
        self._sink = services.sink
        self._outbox = services.outbox
        self._follower = services.follower
        self._keeper = ChatKeeper(services.chats, services.search, NAME, principal)
        self._limits = services.limits
        self._clock = services.clock
        self._readers: dict[str, PageReader] = {}
        self._feed: PageFeed | None = None
        self._closed = False

    async def handle(self, frame: web.ClientFrame, came_at: float) -> None:
        """Handle a frame of time `came_at` (monotonic). Raises BadInput, Refused, RedisAway."""
        match frame:
            case web.SendFrame():
                await self._handle_message(frame, came_at)
            case web.StopFrame(chat=chat, turn=turn):
                await self._sink.stop(self._session(chat), turn)
            case web.ResumeFrame():
                self._subscribe(frame, announce=True)
            case web.ListChatsFrame() | web.LabelFrame() | web.DeleteFrame() | web.UndeleteFrame():
                self._send(await self._keeper.handle(frame))
            case web.SearchFrame(text=text):
                self._send(await self._keeper.search(text))
            case web.FollowFeedFrame(after=after):
                self._follow_feed(after)
            case web.ReadHistoryFrame(chat=chat, before=before):
                await self._send_history(chat, before)
            case web.AckFrame(chat=chat, seq=seq):
                with contextlib.suppress(RedisAway):  # the next one covers it
                    await self._outbox.ack(self._session(chat), seq)
            case web.WithdrawFrame(id=id, chat=chat):
                await self._handle_withdraw(id, chat)
            case web.ApproveFrame(chat=chat, call=call, yes=yes, digest=digest, always=always):
                where = self._metadata.get(DEVICE, NAME)
                answered = ApprovalAnswer(yes=yes, sender=self._principal, where=where, always=always)
                outcome = await self._sink.approve(self._session(chat), call, answered, digest=digest)
                if outcome != "done":  # else every socket of the chat gets the line about it
                    raise BadInput(f"approval_{outcome}", REFUSALS[outcome])
            case web.KillFrame(chat=chat):
                if (kill := self._services.killer_for(self._principal)) is None:
                    raise BadInput("not_offered", "only the owner can kill workers, while `shoal up` runs the demo")
                await kill(self._session(chat))
            case web.HelloFrame():
                raise BadInput("bad_frame", "hello is said once, as the first frame")

    def unsubscribe_all(self) -> None:
        """Stop showing chats, and the feed, to this client."""
        self._closed = True
        self._unfollow_feed()
        for session, reader in self._readers.items():
            self._follower.unfollow(session, reader)
        self._readers.clear()

    async def _handle_message(self, frame: web.SendFrame, came_at: float) -> None:
        session = self._session(frame.chat)
        now_ms = self._clock.now_ms()
        files = self._services.media
        media = await files.check_references(session, frame.media, self._limits.files)
        message = InboundMessage(
            channel=NAME,
            chat_id=self._chat_id(frame.chat),
            sender_id=self._principal,
            id=frame.id,
            content=frame.text,
            timestamp=now_ms,
            media=media,
            metadata=self._metadata,
            traceparent=frame.traceparent,
        )
        accepted = await self._sink.ingest(
            message,
            show=UserLine(id=frame.id, text=frame.text, at=now_ms, media=media),
            principal=self._principal,
            retry_for_s=max(0.0, came_at + self._limits.retry_s - self._clock.monotonic()),
        )
        if not accepted.rejected:
            (MESSAGES_DUPLICATE if accepted.duplicate else MESSAGES_ACCEPTED).labels(NAME).inc()
        turn = accepted.turn
        duplicate = accepted.duplicate
        log.debug("message accepted", session=log_id(session), turn=turn, duplicate=duplicate)
        self._send(web.AcceptedFrame(frame.id, frame.chat, accepted.ahead, accepted.turn))
        if (reader := self._readers.get(session)) is not None:
            if accepted.turn:
                reader.add_message(frame.id)
        else:
            self._subscribe(web.ResumeFrame(frame.chat, max(0, accepted.seq - 1)), announce=False)

    async def _handle_withdraw(self, id: str, chat: str | None) -> None:
        """Withdraw a message. Every socket of the chat, this one too, gets the line about it."""
        prefix = session_id(NAME, self._chat_id(""))
        chats = [chat] if chat is not None else [one.removeprefix(prefix) for one in self._readers]
        for one in chats:
            match await self._sink.withdraw(NAME, self._chat_id(one), id):
                case "withdrawn":
                    return
                case "answering":
                    raise BadInput("too_late", ANSWERING)
                case "over":
                    raise BadInput("too_late", "this message is answered already")
        raise BadInput("not_found", f"no message {id!r} waits in this chat")

    async def _send_history(self, chat: str, before: int | None) -> None:
        found: list[NumberedLine] = []
        session = self._session(chat)
        if before is None or before > 1:
            found = await self._outbox.read_before(session, seq=before, limit=HISTORY_LINES + 1)
        kept: list[web.LineFrame] = []
        chars = 0
        for numbered in reversed(found):
            line = numbered.line
            chars += len(line.text if isinstance(line, UserLine) else line.content)
            if len(kept) == HISTORY_LINES or (kept and chars > HISTORY_CHARS):
                break
            kept.append(await self._services.encoder.lines.render_soon(session, chat, numbered))
        self._send(web.HistoryFrame(chat, kept[::-1], more=len(kept) < len(found)))

    def _subscribe(self, resume: web.ResumeFrame, *, announce: bool) -> None:
        if self._closed:
            return
        session = self._session(resume.chat)
        old = self._readers.pop(session, None)
        if old is None and len(self._readers) >= self._limits.chats:
            eldest = next(iter(self._readers))
            self._follower.unfollow(eldest, self._readers.pop(eldest))
        elif old is not None:
            self._follower.unfollow(session, old)
        encoder = self._services.encoder
        reader = PageReader(self._subscriber, encoder, session, resume, announce=announce)
        self._readers[session] = reader
        self._follower.follow(session, reader)

    def _follow_feed(self, after: str) -> None:
        if self._closed:
            return
        self._unfollow_feed()
        self._feed = PageFeed(self._subscriber, self._keeper, after)
        self._services.feeds.follow(session_id(NAME, self._principal), self._feed)

    def _unfollow_feed(self) -> None:
        if self._feed is not None:
            self._services.feeds.unfollow(session_id(NAME, self._principal), self._feed)
            self._feed = None

    def _chat_id(self, chat: str) -> str:
        return f"{self._principal}/{chat}"

    def _session(self, chat: str) -> str:
        return session_id(NAME, self._chat_id(chat))

    def _send(self, frame: ServerFrame) -> None:
        self._subscriber.send(encode_frame(frame))
