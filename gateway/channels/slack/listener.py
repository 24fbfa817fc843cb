"""Listen by Socket Mode (docs.slack.dev/apis/events-api/using-socket-mode): an event is
acknowledged after it was accepted; Slack repeats what is not.

The SDK's own client reconnects forever even with a revoked token, handles the messages of one chat
in parallel, and drops a connection before it has the next; slack-bolt builds on it. Here the next
one is opened while the old one is read: Slack announces a few seconds ahead that it closes it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType

from gateway.channels.slack.calls import SlackWebApi
from gateway.channels.slack.parse import conversation_id
from gateway.channels.slack.wire import Envelope, SlackEvent, UnreadablePayload, read_envelope, read_payload
from gateway.channels.sockets import HOLD_S, SocketEvents
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.log import logger

PING_S: Final = 10.0
CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024

log = logger("slack")


class SocketModeConnection:
    """One WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> str | None:
        """Return the next frame, None once the connection is closed."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                return str(message.data)
            if message.type is not WSMsgType.BINARY:
                return None

    async def acknowledge(self, envelope_id: str) -> None:
        """Tell Slack not to repeat this envelope; if that fails, it does on another connection."""
        try:
            await self._socket.send_str(json.dumps({"envelope_id": envelope_id}))
        except (ClientError, ConnectionError, RuntimeError):
            return

    async def close(self) -> None:
        await self._socket.close()


async def open_connection(calls: SlackWebApi, app_token: str) -> SocketModeConnection:
    """Open one more connection. Raises ChannelBroken, NotAccepted, Throttled."""
    try:
        reply = await calls.call_setup(calls.sdk.apps_connections_open(app_token=app_token))
    except ChannelBroken as exc:
        raise ChannelBroken(
            "Slack opens no socket with channels.slack.app_token: it must be an app-level token (xapp-) "
            "of this app with connections:write, and Socket Mode must be on"
        ) from exc
    url = str(reply.get("url", ""))
    if not url.startswith(("wss://", calls.origin.replace("http", "ws", 1))):
        raise NotAccepted("Slack told no address for a socket")
    timeout = ClientWSTimeout(ws_close=CLOSE_S)
    try:
        socket = await calls.http.ws_connect(
            url, heartbeat=PING_S, timeout=timeout, max_msg_size=FRAME_BYTES, proxy=calls.proxy
        )
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no socket: {type(exc).__name__}") from exc
    return SocketModeConnection(socket)


class SocketModeListener:
    """One run of listening: it ends on request or when the connection is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[SocketModeConnection]],
        accept: Callable[[SlackEvent], Awaitable[None]],
        hold_s: float = HOLD_S,
    ) -> None:
        self._accept = accept
        self._hold_s = hold_s
        self._events = SocketEvents("Slack", connect, self._read_envelopes)
        self.run = self._events.run

    async def _read_envelopes(self, socket: SocketModeConnection) -> None:
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
                self._events.refresh()

    async def _handle_envelope(self, socket: SocketModeConnection, envelope: Envelope) -> None:
        event = None
        try:
            event = read_payload(envelope)
        except UnreadablePayload as exc:
            log.warning("event not understood", kind=envelope.type, why=str(exc))
        if event is not None:
            chat, accept = conversation_id(event), partial(self._accept, event)
            await self._events.accept(chat, accept, self._hold_s)
        # Also for one that could not be read: repeating it would not help.
        await socket.acknowledge(envelope.envelope_id)
