"""One open web socket: login, frames in order, and the end of the connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.channels.web.http.auth import Login, host_of
from gateway.channels.web.socket.connection import SendQueue, connection_of
from gateway.channels.web.socket.frame_handler import NAME, FrameHandler, PageServices
from gateway.channels.web.socket.frames import decode_frame, decode_ids, encode_frame
from shared.errors import BadInput, NotAllowed, RedisAway, Refused
from shared.log import logger
from shared.messages.web import BranchFrame, ClientFrame, ErrorFrame, HelloFrame, SendFrame, WelcomeFrame
from shared.metrics import MESSAGES_REFUSED
from shared.process.token_bucket import TokenBucket
from shared.store.schedules.times import usable_timezone
from shared.tasks import cancel_all
from shared.version import VERSION

FAILED: Final = 1011
RESTARTING: Final = 1012
TOO_SLOW: Final = 1013
NOT_ALLOWED: Final = 4401

HELLO_CHARS: Final = 4096
WAITING_FRAMES: Final = 64
WAITING_CHARS: Final = 4 * 1024 * 1024
FLOOD: Final = 1000
"""This many refused frames in a row end the connection: refusing costs more than sending."""

RETRY_S: Final = 2.0
AWAY: Final = "the store is away; please try again in a moment"
FAULT: Final = "an internal error; please tell whoever runs this service"
NOT_ACCEPTED: Final = "This access token is not accepted here. Check that you have copied all of it."
CROWDED_OUT: Final = "this gateway has as many connections as it can; please try again in a moment"
CROWDED: Final = "too much waits on this connection; please slow down"

log = logger("web")


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and rates of one socket; a client with two sockets has them twice."""

    hello_s: float = 10.0
    stuck_s: float = 20.0
    finish_s: float = 2.0
    frames_burst: int = 200
    frames_per_s: float = 50.0
    messages_burst: int = 60  # more than an inbox holds: the inbox limits one chat
    messages_per_s: float = 5.0


class PageSocket:
    """Serves one client until it leaves, misbehaves, or the process ends. Frames are parsed as they
    come and handled one after another, by a task that lives only while frames wait."""

    def __init__(self, socket: WebSocket, services: PageServices, limits: SocketLimits) -> None:
        self._socket = socket
        self._connection = connection_of(socket.scope)
        self._services = services
        self._principals = services.principals
        self._clock = services.clock
        self._limits = limits
        self._login: Login | None = None
        self._handler: FrameHandler | None = None
        self._outgoing = SendQueue(self._connection, stuck_s=limits.stuck_s, give_up=self._too_slow)
        self._waiting: list[tuple[ClientFrame, int, float]] = []
        self._waiting_chars = 0
        self._refused_in_row = 0
        self._worker: asyncio.Task[None] | None = None
        now = self._clock.monotonic()
        self._frames = TokenBucket(limits.frames_burst, limits.frames_per_s, now)
        self._messages = TokenBucket(limits.messages_burst, limits.messages_per_s, now)
        loop = asyncio.get_running_loop()
        late = BadInput("bad_frame", f"no hello came within {limits.hello_s:g} s")
        self._hello_timer = loop.call_later(limits.hello_s, self._refuse_hello, late)
        self._ended: asyncio.Future[tuple[int | None, str]] = loop.create_future()

    async def serve(self) -> None:
        """Serve the connection from its handshake to its end."""
        try:
            await self._socket.accept()
            self._connection.attach(self)
            code, reason = await self._ended
            self._unsubscribe()
            if code != TOO_SLOW:
                # Finish what was read and send the answers, as far as time allows.
                if self._worker is not None:
                    await asyncio.wait([self._worker], timeout=self._limits.finish_s)
                self._outgoing.finish()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.finish_s):
                        await self._outgoing.flush()
        finally:
            self._unsubscribe()
            self._outgoing.drop()
            self._hello_timer.cancel()
            if self._worker is not None:
                await cancel_all([self._worker])
        if code is not None:
            await self._close_connection(code, reason)

    def end(self, code: int | None, reason: str) -> None:
        """Close with this code, None when the client has disconnected; the first call counts."""
        if not self._ended.done():
            self._ended.set_result((code, reason))

    def recheck(self) -> bool:
        """Return whether the token of the login is still valid; end the connection if not."""
        if self._login is None or self._principals.is_current(self._login):
            return True
        self._reject_login("the token is not valid any more; please log in again")
        return False

    def send(self, frame: bytes) -> None:
        self._outgoing.send(frame)

    def send_live(self, frame: bytes) -> None:
        self._outgoing.send_live(frame)

    async def drain(self) -> None:
        await self._outgoing.drain()

    def fail(self) -> None:
        self.end(FAILED, "internal error")

    def on_text(self, text: str | None) -> None:
        if self._ended.done():
            return
        try:
            if text is None:
                error = BadInput("bad_frame", "a frame must be text, not bytes")
                (self._send_error if self._login else self._refuse_hello)(error)
            elif self._login is None:
                self._check_hello(text)
            else:
                self._queue_frame(text)
        except Exception:
            log.exception("socket failed")
            self.fail()

    def on_writable(self) -> None:
        self._outgoing.resume()

    def on_closed(self) -> None:
        self._outgoing.drop()
        self.end(None, "gone")

    def _check_hello(self, raw: str) -> None:
        try:
            if len(raw) > HELLO_CHARS:
                message = f"the first frame has {len(raw):,} characters; a hello is shorter"
                raise BadInput("bad_frame", message)
            frame = decode_frame(raw)
        except BadInput as exc:
            # One try without a token: an unknown client must not keep this process busy.
            self._refuse_hello(exc)
            return
        try:
            token = frame.token if isinstance(frame, HelloFrame) else ""
            login = self._principals.admit(token, host_of(self._socket))
        except Refused as exc:
            self._refuse_hello(exc)
            return
        if login is None:
            # The page shows this text to the person who typed the token.
            known = isinstance(frame, HelloFrame)
            self._reject_login(NOT_ACCEPTED if known else "the first frame must be hello, with a token")
            return
        if (place := self._connection.place) is not None and not place.become_known():
            self._send_error(Refused("overloaded", CROWDED_OUT, RETRY_S))
            self._too_slow()
            return
        self._login = login
        self._hello_timer.cancel()
        services = self._services
        zone = usable_timezone(frame.timezone) if isinstance(frame, HelloFrame) else ""
        device = frame.device if isinstance(frame, HelloFrame) else ""
        self._handler = FrameHandler(self, login.principal, services, timezone=zone, device=device)
        files = services.limits.files
        file_bytes = services.media.file_bytes
        commands = services.sink.commands
        first_run = services.first_run is not None and services.first_run.offered_to(login.principal)
        kill = services.killer_for(login.principal) is not None
        welcome = WelcomeFrame(
            login.principal,
            VERSION,
            commands,
            files,
            file_bytes,
            first_run,
            kill,
            services.features,
            services.presets,
        )
        self.send(encode_frame(welcome))

    def _refuse_hello(self, error: BadInput | Refused) -> None:
        self._send_error(error)
        self.end(NOT_ALLOWED, "no hello")

    def _queue_frame(self, raw: str) -> None:
        if not self.recheck():
            return
        now = self._clock.monotonic()
        try:
            frame = self._admit_frame(raw, now)
        except (BadInput, Refused) as exc:
            self._send_error(exc, *decode_ids(raw))
            self._refused_in_row += isinstance(exc, Refused)
            if self._refused_in_row > FLOOD:
                self._too_slow()
            return
        self._refused_in_row = 0
        self._waiting_chars += len(raw)
        self._waiting.append((frame, len(raw), now))
        if self._worker is None:
            self._worker = asyncio.create_task(self._handle_frames())

    def _admit_frame(self, raw: str, now: float) -> ClientFrame:
        self._check_rate(self._frames, now, "frames")
        frame = decode_frame(raw)
        # A branch copies a whole conversation: it costs no less than a message.
        if isinstance(frame, SendFrame | BranchFrame):
            self._check_rate(self._messages, now, "messages")
        many = len(self._waiting) >= WAITING_FRAMES
        if self._waiting and (many or self._waiting_chars + len(raw) > WAITING_CHARS):
            raise Refused("rate_limited", CROWDED, RETRY_S)
        return frame

    def _check_rate(self, bucket: TokenBucket, now: float, noun: str) -> None:
        wait_s = bucket.try_acquire(now)
        if wait_s:
            raise Refused("rate_limited", f"too many {noun} at once; please slow down", wait_s)

    async def _handle_frames(self) -> None:
        handler = self._handler
        assert handler is not None
        try:
            while self._waiting:
                frame, chars, came_at = self._waiting.pop(0)
                try:
                    await handler.handle(frame, came_at)
                except (BadInput, Refused, RedisAway) as exc:
                    if isinstance(frame, SendFrame):
                        log.info("message refused", reason=getattr(exc, "code", "unavailable"))
                    self._send_error(exc, getattr(frame, "id", None), getattr(frame, "chat", None))
                except Exception:
                    # One chat that cannot be read must not take the others of this person along.
                    log.exception("frame failed", kind=type(frame).__name__)
                    refused = Refused("broken", FAULT, RETRY_S)
                    self._send_error(refused, getattr(frame, "id", None), getattr(frame, "chat", None))
                finally:
                    self._waiting_chars -= chars
        finally:
            self._worker = None

    def _send_error(
        self, error: BadInput | Refused | RedisAway, id: str | None = None, chat: str | None = None
    ) -> None:
        if isinstance(error, RedisAway):
            error = Refused("unavailable", AWAY, RETRY_S)
        code = error.code
        retry_s = error.retry_after_s if isinstance(error, Refused) else None
        if id is not None and code not in ("too_late", "not_found"):
            MESSAGES_REFUSED.labels(NAME, code).inc()
        self.send(encode_frame(ErrorFrame(code, error.message, id, chat, retry_s)))

    def _reject_login(self, message: str) -> None:
        self._send_error(NotAllowed("not_allowed", message))
        self.end(NOT_ALLOWED, "not allowed")

    def _too_slow(self) -> None:
        self.end(TOO_SLOW, "too slow; come back and resume")

    def _unsubscribe(self) -> None:
        if self._handler is not None:
            self._handler.unsubscribe_all()

    async def _close_connection(self, code: int, reason: str) -> None:
        # A client that does not read gets the close frame when it does, or the kernel drops the
        # connection (TCP_USER_TIMEOUT on the listener).
        within_s = self._limits.stuck_s if code == TOO_SLOW else self._limits.finish_s
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(within_s):
                await self._socket.close(code, reason)
