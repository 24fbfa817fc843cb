"""Listen by Socket Mode: an event is acknowledged after it was accepted; Slack repeats what is not
acknowledged.

Events of one conversation are accepted in order, conversations in parallel. Slack announces a few
seconds ahead that it will close a connection: the next one is opened while the old one is still
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from gateway.channels.slack.parse import conversation_id
from gateway.channels.slack.wire import Envelope, SlackEvent, UnreadablePayload, read_envelope, read_payload
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.backoff import full_jitter
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import cancel_all

AT_ONCE: Final = 200
"""At most this many envelopes are in progress; then reading pauses."""

HOLD_S: Final = 30.0
"""An event that cannot be accepted for this long is left to another replica. Meanwhile it exists
only at Slack."""

AGAIN_FIRST_S: Final = 0.05
AGAIN_CAP_S: Final = 1.0
FINISH_S: Final = 1.0

log = logger("slack")


class EnvelopeSocket(Protocol):
    """One Socket Mode connection, as the listener needs it."""

    async def receive(self) -> str | None: ...
    async def acknowledge(self, envelope_id: str) -> None: ...
    async def close(self) -> None: ...


class SocketModeListener:
    """One run of listening: it ends on request or when the connection is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[EnvelopeSocket]],
        take: Callable[[SlackEvent], Awaitable[None]],
        *,
        hold_s: float = HOLD_S,
    ) -> None:
        self._connect = connect
        self._take = take
        self._hold_s = hold_s
        self._sockets: dict[asyncio.Task[None], EnvelopeSocket] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        self._news = asyncio.Event()
        self._refresh = False
        self._broke: Exception | None = None

    async def run(self, until: asyncio.Event) -> None:
        """Listen until `until` is set. Raises NotAccepted when the connection is lost,
        ChannelBroken, RedisAway, Refused."""
        ending = asyncio.create_task(until.wait())
        ending.add_done_callback(lambda _: self._news.set())
        try:
            newest = await self._open_socket()
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
                    newest = await self._open_socket()
                await self._drop_ended_sockets()
            await cancel_all(self._sockets)  # no more is read; what is under way can still be confirmed
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=FINISH_S)
        finally:
            try:
                await cancel_all([ending, *self._sockets, *self._under_way])
            finally:
                await asyncio.gather(*(socket.close() for socket in self._sockets.values()), return_exceptions=True)

    async def _open_socket(self) -> asyncio.Task[None]:
        socket = await self._connect()
        reader = asyncio.create_task(self._read_envelopes(socket), name="socket")
        reader.add_done_callback(lambda _: self._news.set())
        self._sockets[reader] = socket
        return reader

    async def _drop_ended_sockets(self) -> None:
        for reader in [reader for reader in self._sockets if reader.done()]:
            await self._sockets.pop(reader).close()
            reader.result()

    async def _read_envelopes(self, socket: EnvelopeSocket) -> None:
        """Start handling every envelope of a connection, until it ends."""
        while (frame := await socket.receive()) is not None:
            try:
                envelope = read_envelope(frame)
            except UnreadablePayload as exc:
                log.warning("frame not understood", why=str(exc))
                continue
            if envelope.type == "disconnect":
                self._on_disconnect(envelope.reason)
            elif envelope.envelope_id:
                await self._slots.acquire()
                taking = asyncio.create_task(self._handle_envelope(socket, envelope), name="envelope")
                self._under_way.add(taking)
                taking.add_done_callback(self._done)

    def _on_disconnect(self, reason: str) -> None:
        match reason:
            case "link_disabled":
                raise ChannelBroken("Socket Mode is off: turn it on in the settings of the Slack app")
            case "too_many_websockets":
                raise NotAccepted("Slack has ten sockets of this app already")
            case _:  # warning, refresh_requested
                self._refresh = True
                self._news.set()

    async def _handle_envelope(self, socket: EnvelopeSocket, envelope: Envelope) -> None:
        event = None
        try:
            event = read_payload(envelope)
        except UnreadablePayload as exc:
            log.warning("event not understood", kind=envelope.type, why=str(exc))
        if event is not None:
            async with self._chats.setdefault(conversation_id(event), asyncio.Lock()):
                await self._take_in_time(event)
        await socket.acknowledge(envelope.envelope_id)

    async def _take_in_time(self, event: SlackEvent) -> None:
        now = asyncio.get_running_loop().time
        give_up_at = now() + self._hold_s
        for wait_s in full_jitter(AGAIN_FIRST_S, AGAIN_CAP_S):
            try:
                await self._take(event)
                return
            except (RedisAway, Refused) as exc:
                again_s = max(wait_s, exc.retry_after_s) if isinstance(exc, Refused) else wait_s
                if now() + again_s > give_up_at:
                    raise
            await asyncio.sleep(again_s)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._slots.release()
        if task.cancelled() or (broke := task.exception()) is None:
            return
        if not isinstance(broke, RedisAway | Refused):
            log.error("event not taken", exc_info=broke)  # it is told again, and others are not kept waiting
        else:
            self._broke = broke
            self._news.set()
