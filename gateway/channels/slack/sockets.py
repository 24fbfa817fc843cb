"""Connections of Socket Mode (docs.slack.dev/apis/events-api/using-socket-mode), opened and nothing
more.

The SDK's own client connects again by itself for ever, also with a token that is good no more,
takes the messages of a chat side by side, and leaves one connection before it has the next;
slack-bolt stands on that. `listener.py` says what happens on a connection here.
"""

from __future__ import annotations

import json
from typing import Final

from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType

from gateway.channels.slack.calls import Calls
from gateway.platform.protocol import ChannelBroken, NotAccepted

PING_S: Final = 10.0
CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024


class Connection:
    """One socket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> str | None:
        """The next frame; None when the connection is over."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                return str(message.data)
            if message.type is not WSMsgType.BINARY:
                return None

    async def confirm(self, envelope_id: str) -> None:
        """Slack need not tell this again. Over a connection that is gone nothing can be said, and
        it will."""
        try:
            await self._socket.send_str(json.dumps({"envelope_id": envelope_id}))
        except (ClientError, ConnectionError, RuntimeError):
            return

    async def close(self) -> None:
        await self._socket.close()


async def connect(calls: Calls, app_token: str) -> Connection:
    """One more connection. Raises ChannelBroken, NotAccepted, Throttled."""
    try:
        told = await calls.sure(calls.sdk.apps_connections_open(app_token=app_token))
    except ChannelBroken as exc:
        raise ChannelBroken(
            "Slack opens no socket with channels.slack.app_token: it must be an app-level token (xapp-) of this app "
            "with connections:write, and Socket Mode must be on"
        ) from exc
    url = str(told.get("url", ""))
    if not url.startswith(("wss://", calls.origin.replace("http", "ws", 1))):
        raise NotAccepted("Slack told no address for a socket")
    try:
        socket = await calls.http.ws_connect(
            url,
            heartbeat=PING_S,
            timeout=ClientWSTimeout(ws_close=CLOSE_S),
            max_msg_size=FRAME_BYTES,
            proxy=calls.proxy,
        )
    except (ClientError, TimeoutError) as exc:
        raise NotAccepted(f"no socket: {type(exc).__name__}") from exc
    return Connection(socket)
