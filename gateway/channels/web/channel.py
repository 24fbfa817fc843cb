"""The web channel: the page, its socket, files and the API on one address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from starlette.websockets import WebSocket

from gateway.channels.web.api.completion import ApiLimits, ApiServices
from gateway.channels.web.api.router import ApiRouter
from gateway.channels.web.http.app import make_app
from gateway.channels.web.http.auth import Principals
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.http.responses import read_static_files
from gateway.channels.web.http.server import WebServer, bind
from gateway.channels.web.markdown import MarkdownRenderer
from gateway.channels.web.socket.frame_handler import NAME, FrameLimits, PageServices
from gateway.channels.web.socket.frames import LineRenderer
from gateway.channels.web.socket.page_reader import NewsEncoder
from gateway.channels.web.socket.socket import RESTARTING, PageSocket, SocketLimits
from gateway.ingress.ingest import Ingress
from shared.chatlog.follower import ChatFollower
from shared.log import logger
from shared.media.store import MediaStore
from shared.process.listening import address_of
from shared.settings import MediaSettings, Settings, WebSettings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import Requests

TOKENS_EVERY_S: Final = 1.0

log = logger("web")


def make(settings: Settings, client: RedisClient) -> WebChannel:
    """Make the channel of this process. Raises SettingsError when no token exists."""
    presets = tuple(settings.model.presets)
    return WebChannel(settings.web, Principals.of(settings), client, media=settings.media, presets=presets)


class WebChannel:
    """Serves web chats on one address. What matters is in Redis: logs and messages."""

    name = NAME

    def __init__(
        self,
        settings: WebSettings,
        principals: Principals,
        client: RedisClient,
        *,
        socket_limits: SocketLimits | None = None,
        answer_limits: FrameLimits | None = None,
        media: MediaSettings | None = None,
        presets: Iterable[str] = (),
        api_limits: ApiLimits | None = None,
    ) -> None:
        self._settings = settings
        self._principals = principals
        self._socket_limits = socket_limits or SocketLimits()
        media = media or MediaSettings()
        self._frame_limits = answer_limits or FrameLimits(files=media.per_message)
        self._client = client
        self._store = MediaStore(media)
        self._media = MediaRouter(self._store, principals, allowed_origins=settings.allowed_origins)
        self._presets = tuple(presets)
        self._api_limits = api_limits or ApiLimits(files=media.per_message)
        self._api: ApiRouter | None = None
        self._outbox = Outbox(client)
        self._markdown = MarkdownRenderer()
        self._follower = self._make_follower()
        self._sockets: dict[PageSocket, asyncio.Task[None]] = {}
        self._address = ""

    async def listen(self, sink: Ingress, draining: asyncio.Event) -> None:
        listener = bind(self._settings.host, self._settings.port)
        followers, origins = {"page": self._follower, "api": self._make_follower()}, self._settings.allowed_origins
        page = PageServices(
            sink=sink,
            principals=self._principals,
            outbox=self._outbox,
            follower=self._follower,
            encoder=NewsEncoder(LineRenderer(self._markdown), progress=self._settings.progress),
            media=self._media,
            limits=self._frame_limits,
        )
        services = ApiServices(
            sink=sink,
            principals=self._principals,
            follower=followers["api"],
            requests=Requests(self._client),
            sessions=EphemeralSessions(self._client),
            media=self._store,
            closing=asyncio.Event(),
            allowed_origins=origins,
            limits=self._api_limits,
        )
        api = self._api = ApiRouter(services, self._presets)
        app = make_app(
            read_static_files(),
            partial(self._serve, page),
            self._media,
            api=api.routes(),
            allowed_origins=origins,
            draining=draining.is_set,
        )
        self._address = address_of(listener)
        server = WebServer(app, on_started=lambda: log.info("web listening", address=self._address))
        try:
            async with asyncio.TaskGroup() as group:
                chores = [group.create_task(one.run(), name=f"follower {name}") for name, one in followers.items()]
                chores.append(group.create_task(self._watch_tokens(), name="tokens"))
                serving = group.create_task(server.serve(sockets=[listener]), name="web server")
                await draining.wait()
                # What clients have sent is answered first; then they go to another gateway.
                for socket in self._sockets:
                    socket.end(RESTARTING, "restarting; come back")
                pages, limit_s = list(self._sockets.values()), 3 * self._socket_limits.finish_s
                waits = [asyncio.wait(pages, timeout=limit_s)] if pages else []
                await asyncio.gather(*waits, api.close())
                server.should_exit = True
                await serving
                for chore in chores:
                    chore.cancel()
        finally:
            listener.close()
            self._markdown.close()

    def facts(self) -> dict[str, str]:
        return {
            "web.address": self._address,
            "web.sockets": str(len(self._sockets)),
            "web.chats": str(self._follower.chats),
            "web.requests": str(self._api.requests if self._api else 0),
        }

    def _make_follower(self) -> ChatFollower:
        return ChatFollower(self._outbox, lambda on_gap: Fanout(self._client, on_gap=on_gap))

    async def _serve(self, services: PageServices, websocket: WebSocket) -> None:
        socket = PageSocket(websocket, services, self._socket_limits)
        task = asyncio.current_task()
        assert task is not None
        self._sockets[socket] = task
        try:
            await socket.serve()
        finally:
            del self._sockets[socket]

    async def _watch_tokens(self) -> None:
        # For sockets that only receive: they send nothing that would be checked.
        seen = self._principals.refresh()
        while True:
            await asyncio.sleep(TOKENS_EVERY_S)
            changes = self._principals.refresh()
            if changes != seen:
                seen = changes
                for socket in list(self._sockets):
                    socket.recheck()
