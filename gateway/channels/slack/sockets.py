"""Open Socket Mode connections (docs.slack.dev/apis/events-api/using-socket-mode).

The SDK's own client reconnects forever even with a revoked token, handles the messages of one chat
in parallel, and drops a connection before it has the next; slack-bolt builds on it. `listener.py`
decides what happens on a connection.
"""

from __future__ import annotations

import json
from typing import Final

from aiohttp import ClientError, ClientWebSocketResponse, ClientWSTimeout, WSMsgType

from gateway.channels.slack.calls import SlackWebApi
from gateway.platform.protocol import ChannelBroken, NotAccepted

PING_S: Final = 10.0
CLOSE_S: Final = 1.0
FRAME_BYTES: Final = 4 * 1024 * 1024


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
        """Tell Slack not to repeat this envelope. If the connection is gone, Slack repeats it on
        another one."""
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
            "Slack opens no socket with channels.slack.app_token: it must be an app-level token (xapp-) of this app "
            "with connections:write, and Socket Mode must be on"
        ) from exc
    url = str(reply.get("url", ""))
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
    return SocketModeConnection(socket)
