"""The web channel: the page, its socket, files and the API on one address."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.websockets import WebSocket

from gateway.channels.web.api.completion import ApiLimits, ApiServices
from gateway.channels.web.api.router import ApiRouter
from gateway.channels.web.http.about import AboutRouter
from gateway.channels.web.http.app import make_app
from gateway.channels.web.http.auth import Principals
from gateway.channels.web.http.export import ExportRouter
from gateway.channels.web.http.first_run import FirstRun
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.http.own_chat import OwnChats, Visitors
from gateway.channels.web.http.server import WebServer, bind
from gateway.channels.web.http.shared_chat import SharedChats
from gateway.channels.web.http.static_files import StaticFiles
from gateway.channels.web.http.work_log import WorkLogRouter
from gateway.channels.web.renderer import MarkdownRenderer
from gateway.channels.web.settings.router import settings_routes
from gateway.channels.web.settings.zones import ChosenZones
from gateway.channels.web.socket.answer_keeper import AnswerKeeper
from gateway.channels.web.socket.chat_keeper import FEATURES
from gateway.channels.web.socket.frame_handler import NAME, FrameLimits, PageServices
from gateway.channels.web.socket.frames import LineRenderer
from gateway.channels.web.socket.page_reader import NewsEncoder
from gateway.channels.web.socket.person_feed import FeedFollower
from gateway.channels.web.socket.socket import RESTARTING, PageSocket, SocketLimits
from gateway.ingress.ingest import Ingress
from shared import metrics
from shared.chatlog.follower import ChatFollower
from shared.log import logger
from shared.media.store import MediaStore
from shared.process.listening import address_of
from shared.settings import ApiSettings, MediaSettings, MemorySettings, Settings, WebSettings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.presence import kill_worker_of
from shared.store.responses.forks import Forks
from shared.store.responses.responses import Responses
from shared.store.sessions.chat_search import ChatSearch
from shared.store.sessions.chats import Chats
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import Requests
from shared.store.sessions.shares import Shares
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.known_messages import SeenMessages

if TYPE_CHECKING:
    from gateway.channels.web.mcp.endpoint import McpEndpoint

TOKENS_EVERY_S: Final = 1.0

log = logger("web")


def make(settings: Settings, client: RedisClient) -> WebChannel:
    """Make the channel of this process. Raises SettingsError when no token exists."""
    presets = tuple(settings.model.presets)
    principals = Principals.of(settings)
    demo = settings.model.name == "demo"
    return WebChannel(
        settings.web,
        principals,
        client,
        media=settings.media,
        presets=presets,
        api=settings.api,
        demo=demo,
        voice=bool(settings.voice.model),
        memory_bytes=settings.memory.file_bytes,
        whole=settings,
    )


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
        api: ApiSettings | None = None,
        demo: bool = False,
        voice: bool = False,
        memory_bytes: int = MemorySettings().file_bytes,
        whole: Settings | None = None,
    ) -> None:
        self._settings = settings
        self._whole = whole or Settings()
        self._principals = principals
        self._socket_limits = socket_limits or SocketLimits()
        media = media or MediaSettings()
        self._frame_limits = answer_limits or FrameLimits(files=media.per_message)
        self._client = client
        self._store = MediaStore(media)
        self._media = MediaRouter(self._store, principals, allowed_origins=settings.allowed_origins)
        self._first_run = FirstRun(principals) if settings.first_run and demo else None
        self._features = (*FEATURES, "voice") if voice else FEATURES
        self._memory_bytes = memory_bytes
        self._answers = AnswerKeeper(client, InboxLimits.of(self._whole))
        self._presets = tuple(presets)
        self._api_limits = api_limits or ApiLimits(files=media.per_message)
        self._api_settings = api or ApiSettings()
        self._api: ApiRouter | None = None
        self._outbox = Outbox(client)
        self._markdown = MarkdownRenderer()
        self._follower = self._make_follower()
        self._feeds = FeedFollower(client)
        self._sockets: dict[PageSocket, asyncio.Task[None]] = {}
        self._address = ""

    async def listen(self, sink: Ingress, draining: asyncio.Event) -> None:
        listener = bind(self._settings.host, self._settings.port)
        followers = {"page": self._follower, "api": self._make_follower()}
        origins = self._settings.allowed_origins
        zones = ChosenZones(self._client)
        page = PageServices(
            sink=sink,
            principals=self._principals,
            outbox=self._outbox,
            chats=Chats(self._client),
            search=ChatSearch(self._client),
            answers=self._answers,
            follower=self._follower,
            feeds=self._feeds,
            encoder=NewsEncoder(LineRenderer(self._markdown), progress=self._settings.progress),
            media=self._media,
            limits=self._frame_limits,
            features=self._features,
            presets=self._presets,
            zones=zones,
            first_run=self._first_run,
            kill_worker=partial(kill_worker_of, self._client) if self._first_run else None,
        )
        services = ApiServices(
            sink=sink,
            principals=self._principals,
            follower=followers["api"],
            requests=Requests(self._client),
            responses=Responses(self._client, days=self._api_settings.store_days),
            forks=Forks(self._client),
            seen=SeenMessages(self._client),
            sessions=EphemeralSessions(self._client),
            media=self._store,
            closing=asyncio.Event(),
            allowed_origins=origins,
            api=self._api_settings,
            limits=self._api_limits,
        )
        visitors = partial(Visitors, self._principals, origins)
        looks = OwnChats(Chats(self._client), visitors(what="looks", burst=20, per_s=2))
        exports = OwnChats(Chats(self._client), visitors(what="exports", burst=10, per_s=0.5))
        works = OwnChats(Chats(self._client), visitors(what="looks", burst=20, per_s=2))
        files = StaticFiles()
        shares = Shares(self._client, days=self._settings.share_days)
        shared_chats = SharedChats(
            shares, self._outbox, Chats(self._client), self._markdown, self._media, files.address("style.css")
        )
        about = AboutRouter(self._client, looks, shares, self._memory_bytes)
        work = WorkLogRouter(self._client, works)
        panel = settings_routes(self._client, self._whole, visitors, zones, self._first_run)
        mcp = _make_mcp_endpoint(self._api_limits) if self._api_settings.mcp else None
        api = self._api = ApiRouter(services, self._presets, None if mcp is None else mcp.respond)
        app = make_app(
            files,
            partial(self._serve, page),
            self._media,
            export=ExportRouter(self._outbox, exports),
            panels=[*about.routes(), *work.routes(), *shared_chats.routes(), *panel],
            first_run=self._first_run,
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
                chores.append(group.create_task(self._feeds.run(), name="feeds"))
                if mcp is not None:
                    chores.append(group.create_task(mcp.run(), name="mcp"))
                serving = group.create_task(server.serve(sockets=[listener]), name="web server")
                await draining.wait()
                # What clients have sent is answered first; then they go to another gateway.
                for socket in self._sockets:
                    socket.end(RESTARTING, "restarting; come back")
                pages = list(self._sockets.values())
                limit_s = 3 * self._socket_limits.finish_s
                waits = [asyncio.wait(pages, timeout=limit_s)] if pages else []
                await asyncio.gather(*waits, api.close())
                server.stop()
                await serving
                for chore in chores:
                    chore.cancel()
        finally:
            listener.close()
            await self._markdown.close()

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
        metrics.WEB_SOCKETS.inc()
        try:
            await socket.serve()
        finally:
            del self._sockets[socket]
            metrics.WEB_SOCKETS.dec()

    async def _watch_tokens(self) -> None:
        # For sockets that only receive: they send nothing that would be checked.
        seen = self._principals.refresh()
        while True:
            self._principals.report()
            await asyncio.sleep(TOKENS_EVERY_S)
            changes = self._principals.refresh()
            if changes != seen:
                seen = changes
                for socket in list(self._sockets):
                    socket.recheck()


def _make_mcp_endpoint(limits: ApiLimits) -> McpEndpoint:
    # Imported here: the library is large, and few gateways serve it.
    module = importlib.import_module("gateway.channels.web.mcp.endpoint")
    made: McpEndpoint = module.McpEndpoint(limits.body_bytes)
    return made
