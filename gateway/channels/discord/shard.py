"""Keep one connection to Discord's gateway open, and resume its session after a break.

Only the WebSocket of discord.py is used, for the handshake, heartbeats and decompression. Its
client would build objects for every event and start a session of its own at each start; here a
session may have been another gateway's, so that Discord replays what was not accepted yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

import aiohttp
from msgspec.structs import replace
from yarl import URL

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.cursor import GatewaySession, new_session
from gateway.channels.discord.settings import DiscordSettings
from gateway.platform.protocol import ChannelBroken
from shared.backoff import Backoff
from shared.log import logger

with warnings.catch_warnings():
    # It imports that for its voices.
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    from discord import Client, ConnectionClosed, Intents
    from discord.gateway import DiscordWebSocket, ReconnectWebSocket

CONNECT_S: Final = 30.0
SILENT_S: Final = 60.0  # a connection silent for this long is dead: every heartbeat is traffic
AGAIN_FIRST_S: Final = 0.5
AGAIN_CAP_S: Final = 30.0
SETTLED_S: Final = 30.0

_KEPT: Final = 4000  # close code that leaves the session resumable; 1000 would end it
_PORTAL: Final = "on the page Bot of Discord's Developer Portal"
_FINAL: Final = {
    4004: f"Discord's gateway does not know this bot: write the token that is shown {_PORTAL} into {{key}}.token",
    4010: "Discord refuses the shards: set {key}.shards to 0",
    4011: "Discord wants more shards: set {key}.shards to 0",
    4012: "Discord's gateway does not speak this version any more: a newer Shoal is needed",
    4013: "Discord does not know the intents that are asked for: a newer Shoal is needed",
    4014: f"this bot may not read messages: switch on Message Content Intent {_PORTAL}, "
    "or set {key}.message_content to false",
}

log = logger("discord")


EventHandler = Callable[[int, str, Any], Awaitable[None]]  # sequence number, name, data


class Shard:
    """Shard `number` of `count` of the channel `name`. `session` is resumed, None = a new one, at
    the address `gateway`, once `may_begin` returns."""

    def __init__(
        self,
        name: str,
        settings: DiscordSettings,
        api: DiscordApi,
        number: int,
        count: int,
        session: GatewaySession | None,
        gateway: str,
        may_begin: Callable[[int], Awaitable[None]],
    ) -> None:
        self.session = session  # as it stands, with the number of the newest event
        self._number = number
        self._key = f"channels.{name}"
        self._gateway = gateway
        self._may_begin = may_begin
        self._make_client = partial(_GatewayClient, settings, api, count)
        self._use_front_door = False  # where the session was is nobody to connect to

    async def run(self, on_event: EventHandler) -> None:
        """Hear events, one by one, for ever. Raises ChannelBroken, and what `may_begin` does."""
        logging.getLogger("discord").setLevel(logging.WARNING)  # below it writes what people say
        backoff = Backoff(AGAIN_FIRST_S, AGAIN_CAP_S)
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            why = await self._run_connection(on_event)
            if loop.time() - began_at > SETTLED_S:
                backoff.reset()
            log.info("shard reconnects", shard=self._number, reason=why, resumes=self.session is not None)
            await backoff.sleep()

    async def _run_connection(self, on_event: EventHandler) -> str:
        """One connection; why it ended."""
        session = self.session
        client = self._make_client()
        if session is None:
            await self._may_begin(self._number)
        url = self._gateway if session is None or self._use_front_door else session.url
        try:
            async with asyncio.timeout(CONNECT_S):
                socket = await DiscordWebSocket.from_client(
                    cast(Client, client),
                    gateway=URL(url),
                    shard_id=self._number,
                    session=session.id if session else None,
                    sequence=session.seq if session else None,
                    resume=session is not None,
                )
            self._use_front_door = False
            while True:
                while client.events:
                    await self._dispatch(on_event, *client.events.popleft())
                await socket.poll_event()
        except ReconnectWebSocket as again:
            if again.resume:
                return "asked to"
            self.session = None
            return "the session is over"
        except ConnectionClosed as closed:
            if closed.code in _FINAL:
                raise ChannelBroken(_FINAL[closed.code].format(key=self._key)) from closed
            return f"closed with {closed.code}"
        except (OSError, aiohttp.ClientError, TimeoutError) as exc:
            # The resume address may be dead: alternate it with the general one.
            self._use_front_door = not self._use_front_door
            return type(exc).__name__
        finally:
            await client.close()

    async def _dispatch(self, on_event: EventHandler, seq: int, name: str, data: Any) -> None:
        if name == "READY":
            self.session = new_session(seq, data)
        elif self.session is not None:
            self.session = replace(self.session, seq=seq)
        await on_event(seq, name, data)


class _GatewayClient:
    """The client, HTTP client and state that discord.py's WebSocket expects, in one object."""

    def __init__(self, settings: DiscordSettings, api: DiscordApi, shards: int) -> None:
        self.events = deque[tuple[int, str, Any]]()
        self.http = self._connection = self
        self.token = settings.token.reveal()
        self.shard_count = shards
        self.heartbeat_timeout = SILENT_S
        self.loop = asyncio.get_running_loop()
        self.parsers = _RawParsers(self._on_event)
        self.ws_connect = api.connect
        self._intents = Intents(
            guilds=True, guild_messages=True, dm_messages=True, message_content=settings.message_content
        )
        self._activity = self._status = None
        self._enable_debug_events = False
        self._socket: DiscordWebSocket | None = None

    async def call_hooks(self, _name: str, *_args: Any, **_more: Any) -> None:
        """Do nothing before a session starts."""

    def dispatch(self, _event: str, *_args: Any) -> None:
        """Ignore the library's own events."""

    def _update_references(self, socket: DiscordWebSocket) -> None:
        self._socket = socket

    def _on_event(self, name: str, data: Any) -> None:
        assert self._socket is not None
        self.events.append((self._socket.sequence or 0, name, data))

    async def close(self) -> None:
        """Close the socket, and end its heartbeat thread."""
        if self._socket is not None:
            with contextlib.suppress(OSError, RuntimeError, aiohttp.ClientError):
                await self._socket.close(_KEPT)


class _RawParsers(dict[str, Callable[[Any], None]]):
    """A parser table that passes on every event unparsed."""

    def __init__(self, on_event: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._on_event = on_event

    def __missing__(self, name: str) -> Callable[[Any], None]:
        return partial(self._on_event, name)
