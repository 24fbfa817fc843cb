"""One open web socket: hello, frames in order, and what its chats have to show."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.channels.web.answers import NAME, Answers
from gateway.channels.web.auth import Login, Principals
from gateway.channels.web.outgoing import Outgoing
from gateway.channels.web.protocol import ClientFrame, Failure, Hello, Say, Welcome, about, read_frame, write_frame
from gateway.channels.web.rate import TokenBucket
from gateway.channels.web.room import Viewer
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, NotAllowed, RedisAway, Refused
from shared.log import logger
from shared.metrics import MESSAGES_REFUSED
from shared.version import VERSION

FAILED: Final = 1011
GOING_AWAY: Final = 1012
TOO_SLOW: Final = 1013
NOT_ALLOWED: Final = 4401

HELLO_CHARS: Final = 4096
WAITING_FRAMES: Final = 64
WAITING_CHARS: Final = 4 * 1024 * 1024
AWAY_RETRY_S: Final = 2.0

AnswersFor = Callable[[Viewer, str], Answers]
"""Makes the answers of one client, by its principal."""

log = logger("web")


class SocketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and rates of a socket. The rates count for this socket alone: whoever opens more has more."""

    hello_s: float = 10.0
    stuck_s: float = 20.0
    finish_s: float = 2.0
    frames_burst: int = 200
    frames_per_s: float = 50.0
    messages_burst: int = 60  # more than an inbox holds: what is too much for one chat is the inbox's to say
    messages_per_s: float = 5.0


class Socket:
    """Serves one client until it leaves, misbehaves, or the process ends. It is the `Viewer` of its chats.

    Three tasks: one reads all the time (so pings are answered whatever else waits), one answers frames one after the
    other, one writes.
    """

    def __init__(
        self,
        socket: WebSocket,
        *,
        principals: Principals,
        answers: AnswersFor,
        limits: SocketLimits,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._socket = socket
        self._principals = principals
        self._make_answers = answers
        self._limits = limits
        self._clock = clock
        self._login: Login | None = None
        self._answers: Answers | None = None
        self._outgoing = Outgoing(on_overflow=self._too_slow)
        self._waiting: asyncio.Queue[tuple[ClientFrame, int, float] | None] = asyncio.Queue()
        self._waiting_chars = 0
        now = clock.monotonic()
        self._frames = TokenBucket(burst=limits.frames_burst, per_s=limits.frames_per_s, now=now)
        self._messages = TokenBucket(burst=limits.messages_burst, per_s=limits.messages_per_s, now=now)
        self._ended: asyncio.Future[tuple[int | None, str]] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Run from the handshake to the end of the connection."""
        await self._socket.accept()
        reader, worker, writer = tasks = [self._start(work) for work in (self._read(), self._work(), self._write())]
        try:
            code, reason = await self._ended
            reader.cancel()
            self._leave()
            if code != TOO_SLOW:
                # What was read is done, and its answers are sent, as far as there is time.
                self._waiting.put_nowait(None)
                await asyncio.wait([worker], timeout=self._limits.finish_s)
                self._outgoing.finish()
                await asyncio.wait([writer], timeout=self._limits.finish_s)
        finally:
            self._leave()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if code is not None:
            await self._hang_up(code, reason)

    def end(self, code: int | None, reason: str) -> None:
        """Close the connection with this code; None when the client has gone already. The first call counts."""
        if not self._ended.done():
            self._ended.set_result((code, reason))

    def recheck(self) -> bool:
        """Whether the token that was shown is still valid; if not, this ends the connection."""
        if self._login is None or self._principals.still(self._login):
            return True
        self._refuse("the token is not valid any more; please log in again")
        return False

    def put(self, frame: str) -> None:
        self._outgoing.put(frame)

    def put_live(self, frame: str) -> None:
        self._outgoing.put_live(frame)

    async def room(self) -> None:
        await self._outgoing.room()

    def broken(self) -> None:
        self.end(FAILED, "internal error")

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self._limits.hello_s):
                while self._login is None and not self._ended.done():
                    self._hello(await self._next_text())
        except TimeoutError:
            self._fail(BadInput("bad_frame", f"no hello came within {self._limits.hello_s:g} s"), None, None)
            self.end(NOT_ALLOWED, "no hello")
        except WebSocketDisconnect:
            self.end(None, "gone")
        try:
            while not self._ended.done():
                self._take(await self._next_text())
        except WebSocketDisconnect:
            self.end(None, "gone")

    async def _next_text(self) -> str:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            text: str | None = message.get("text")
            if text is not None:
                return text
            self._fail(BadInput("bad_frame", "a frame must be text, not bytes"), None, None)
            if self._login is None:
                self.end(NOT_ALLOWED, "no hello")
                raise WebSocketDisconnect(NOT_ALLOWED)

    def _hello(self, raw: str) -> None:
        try:
            if len(raw) > HELLO_CHARS:
                raise BadInput("bad_frame", f"the first frame has {len(raw):,} characters; a hello is shorter")
            frame = read_frame(raw)
        except BadInput as exc:
            # A stranger gets one try: nobody may keep this process busy without a token.
            self._fail(exc, None, None)
            self.end(NOT_ALLOWED, "no hello")
            return
        login = self._principals.login(frame.token) if isinstance(frame, Hello) else None
        if login is None:
            log.info("login refused")
            self._refuse("the first frame must be hello, with a token that is valid here")
            return
        self._login = login
        self._answers = self._make_answers(self, login.principal)
        self.put(write_frame(Welcome(login.principal, VERSION, self._answers.commands, *self._answers.file_limits)))

    def _take(self, raw: str) -> None:
        if not self.recheck():
            return
        now = self._clock.monotonic()
        try:
            frame = self._admitted(raw, now)
        except (BadInput, Refused) as exc:
            self._fail(exc, *about(raw))
            return
        self._waiting_chars += len(raw)
        self._waiting.put_nowait((frame, len(raw), now))

    def _admitted(self, raw: str, now: float) -> ClientFrame:
        self._limit(self._frames, now, "frames")
        frame = read_frame(raw)
        if isinstance(frame, Say):
            self._limit(self._messages, now, "messages")
        full = self._waiting_chars + len(raw) > WAITING_CHARS or self._waiting.qsize() >= WAITING_FRAMES
        if full and not self._waiting.empty():
            raise Refused("rate_limited", "too much waits on this connection; please slow down", AWAY_RETRY_S)
        return frame

    def _limit(self, bucket: TokenBucket, now: float, what: str) -> None:
        wait_s = bucket.take(now)
        if wait_s:
            raise Refused("rate_limited", f"too many {what} at once; please slow down", wait_s)

    async def _work(self) -> None:
        while (waiting := await self._waiting.get()) is not None:
            frame, chars, came_at = waiting
            assert self._answers is not None
            try:
                await self._answers.answer(frame, came_at)
            except (BadInput, Refused, RedisAway) as exc:
                if isinstance(frame, Say):
                    log.info("message refused", reason=getattr(exc, "code", "unavailable"))
                self._fail(exc, getattr(frame, "id", None), getattr(frame, "chat", None))
            finally:
                self._waiting_chars -= chars

    async def _write(self) -> None:
        try:
            while (frame := await self._outgoing.next()) is not None:
                async with asyncio.timeout(self._limits.stuck_s):
                    await self._socket.send_text(frame)
        except TimeoutError:
            self._too_slow()
        except (WebSocketDisconnect, RuntimeError):  # starlette's words for a connection that is gone
            self.end(None, "gone")

    def _fail(self, error: BadInput | Refused | RedisAway, id: str | None, chat: str | None) -> None:
        retry_s: float | None = None
        match error:
            case BadInput(code=code, message=message):
                pass
            case Refused(code=code, message=message, retry_after_s=retry_s):
                pass
            case RedisAway():
                code, message, retry_s = "unavailable", "the store is away; please try again in a moment", AWAY_RETRY_S
        if id is not None and code not in ("too_late", "not_found"):
            MESSAGES_REFUSED.labels(NAME, code).inc()
        self.put(write_frame(Failure(code, message, id, chat, retry_s)))

    def _refuse(self, message: str) -> None:
        self._fail(NotAllowed("not_allowed", message), None, None)
        self.end(NOT_ALLOWED, "not allowed")

    def _too_slow(self) -> None:
        self.end(TOO_SLOW, "too slow; come back and resume")

    def _leave(self) -> None:
        if self._answers is not None:
            self._answers.leave()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()):
            log.error("socket failed", exc_info=exc)
            self.broken()

    async def _hang_up(self, code: int, reason: str) -> None:
        # Whoever does not read gets this once it does, or the kernel drops it (TCP_USER_TIMEOUT on the listener).
        within_s = self._limits.stuck_s if code == TOO_SLOW else self._limits.finish_s
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(within_s):
                await self._socket.close(code, reason)
