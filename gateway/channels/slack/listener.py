"""Listen by Socket Mode: an event is acknowledged after it was accepted; Slack repeats what is not
acknowledged.

Slack announces a few seconds ahead that it will close a connection: the next one is opened while
the old one is still read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from gateway.channels.ordered_events import HOLD_S, OrderedEvents
from gateway.channels.slack.parse import conversation_id
from gateway.channels.slack.wire import Envelope, SlackEvent, UnreadablePayload, read_envelope, read_payload
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.log import logger
from shared.tasks import cancel_all

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
        accept: Callable[[SlackEvent], Awaitable[None]],
        *,
        hold_s: float = HOLD_S,
    ) -> None:
        self._connect = connect
        self._accept = accept
        self._hold_s = hold_s
        self._sockets: dict[asyncio.Task[None], EnvelopeSocket] = {}
        self._news = asyncio.Event()
        self._events = OrderedEvents("slack", self._news.set)
        self._refresh = False

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
                if self._events.failure is not None:
                    raise self._events.failure
                if newest.done():
                    newest.result()
                    raise NotAccepted("the connection to Slack is lost")
                if self._refresh:
                    self._refresh = False
                    newest = await self._open_socket()
                await self._drop_ended_sockets()
            # Reading ends first; events in progress can still be acknowledged.
            await cancel_all(self._sockets)
            await self._events.finish()
        finally:
            try:
                await cancel_all([ending, *self._sockets, *self._events.tasks])
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
                await self._events.start(partial(self._handle_envelope, socket, envelope))

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
            await self._events.accept(conversation_id(event), partial(self._accept, event), hold_s=self._hold_s)
        # Also for one that could not be read: repeating it would not help.
        await socket.acknowledge(envelope.envelope_id)
