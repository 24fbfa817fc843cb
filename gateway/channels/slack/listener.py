"""Listening by Socket Mode: what comes is taken, then confirmed; what is not confirmed Slack tells
again.

What is about one channel is taken in its order, channels beside each other. Slack says some seconds
ahead that it is about to close a connection: then the next one is opened while the old one is still
heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from gateway.channels.slack.parse import place_of
from gateway.channels.slack.wire import Envelope, Told, Unreadable, read_envelope, told_in
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

AT_ONCE: Final = 200
"""So many envelopes may be under way; then no more are read."""

HOLD_S: Final = 30.0
"""What cannot be taken for so long is left to another replica. It is nowhere but at Slack
meanwhile."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0

log = logger("slack")


class Socket(Protocol):
    """One connection."""

    async def receive(self) -> str | None: ...
    async def confirm(self, envelope_id: str) -> None: ...
    async def close(self) -> None: ...


class Listener:
    """Listens once: until it is told to end, or the connection is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Socket]],
        take: Callable[[Told], Awaitable[None]],
        *,
        hold_s: float = HOLD_S,
    ) -> None:
        self._connect = connect
        self._take = take
        self._hold_s = hold_s
        self._sockets: dict[asyncio.Task[None], Socket] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._news = asyncio.Event()
        self._refresh = False
        self._broke: Exception | None = None

    async def listen(self, until: asyncio.Event) -> None:
        """Raises NotAccepted when the connection is lost, ChannelBroken, RedisAway, Refused."""
        ending = asyncio.create_task(until.wait())
        ending.add_done_callback(lambda _: self._news.set())
        try:
            newest = await self._open()
            while not until.is_set():
                await self._news.wait()
                self._news.clear()
                if self._broke is not None:
                    raise self._broke
                if newest.done():
                    newest.result()
                    raise NotAccepted("the connection to Slack is lost")
                if self._refresh:
                    self._refresh = False
                    newest = await self._open()
                await self._forget_those_that_are_over()
            await cancel_all(self._sockets)  # no more is read; what is under way can still be confirmed
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=FINISH_S)
        finally:
            try:
                await cancel_all([ending, *self._sockets, *self._under_way])
            finally:
                await asyncio.gather(*(socket.close() for socket in self._sockets.values()), return_exceptions=True)

    async def _open(self) -> asyncio.Task[None]:
        socket = await self._connect()
        reader = asyncio.create_task(self._read(socket), name="socket")
        reader.add_done_callback(lambda _: self._news.set())
        self._sockets[reader] = socket
        return reader

    async def _forget_those_that_are_over(self) -> None:
        for reader in [reader for reader in self._sockets if reader.done()]:
            await self._sockets.pop(reader).close()
            reader.result()

    async def _read(self, socket: Socket) -> None:
        """Begin with everything that comes over a connection, until it is over."""
        while (frame := await socket.receive()) is not None:
            try:
                envelope = read_envelope(frame)
            except Unreadable as exc:
                log.warning("frame not understood", why=str(exc))
                continue
            if envelope.type == "disconnect":
                self._leave(envelope.reason)
            elif envelope.envelope_id:
                await self._room.acquire()
                taking = asyncio.create_task(self._answer(socket, envelope), name="envelope")
                self._under_way.add(taking)
                taking.add_done_callback(self._done)

    def _leave(self, reason: str) -> None:
        match reason:
            case "link_disabled":
                raise ChannelBroken("Socket Mode is off: turn it on in the settings of the Slack app")
            case "too_many_websockets":
                raise NotAccepted("Slack has ten sockets of this app already")
            case _:  # warning, refresh_requested
                self._refresh = True
                self._news.set()

    async def _answer(self, socket: Socket, envelope: Envelope) -> None:
        told = None
        try:
            told = told_in(envelope)
        except Unreadable as exc:
            log.warning("event not understood", kind=envelope.type, why=str(exc))
        if told is not None:
            async with self._chats.setdefault(place_of(told), asyncio.Lock()):
                await self._take_in_time(told)
        await socket.confirm(envelope.envelope_id)

    async def _take_in_time(self, told: Told) -> None:
        now = asyncio.get_running_loop().time
        give_up_at = now() + self._hold_s
        for wait_s in full_jitter(AGAIN_FIRST_S, AGAIN_CAP_S):
            try:
                await self._take(told)
                return
            except (RedisAway, Refused) as exc:
                again_s = max(wait_s, exc.retry_after_s) if isinstance(exc, Refused) else wait_s
                if now() + again_s > give_up_at:
                    raise
            await asyncio.sleep(again_s)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if task.cancelled() or (broke := task.exception()) is None:
            return
        if not isinstance(broke, RedisAway | Refused):
            log.error("event not taken", exc_info=broke)  # it is told again, and others are not kept waiting
        else:
            self._broke = broke
            self._news.set()
