"""Matrix: one user of a homeserver, heard by one replica, spoken for by all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gateway.channels.matrix.api import Api
from gateway.channels.matrix.hearing import Hearing, Point, read_point
from gateway.channels.matrix.http import Http
from gateway.channels.matrix.render import render
from gateway.channels.matrix.settings import MatrixSettings, read_matrix
from gateway.channels.matrix.wire import Sync
from gateway.platform.protocol import (
    Abilities,
    HookAnswer,
    HookRequest,
    Inlet,
    NotAccepted,
    NotDelivered,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext
from shared.log import logger
from shared.tasks import cancel_all

EDIT_S: Final = 1.5
TYPING_S: Final = 6.0

log = logger("matrix")


def make(given: PlatformContext) -> BuiltPlatform:
    """The platform of these settings. Raises SettingsError."""
    settings = read_matrix(given.name, given.table)
    return BuiltPlatform(Matrix(given.name, settings, given.cursor), settings)


def abilities_of(settings: MatrixSettings) -> Abilities:
    """A transaction id is known again for the same device: with a token that all replicas share.
    Where each logs in as a device of its own, messages carry their key and are looked up."""
    return Abilities(
        run_modes=("exclusive",),
        resend_guard="look-up" if settings.access_token is None else "key",
        edit_every_s=max(EDIT_S, 1.0 / settings.per_s),
        typing_every_s=TYPING_S,
        media=True,
        threads=True,
        rates=(Rate("bot", settings.per_s, settings.burst),),
    )


class Matrix:
    """A user of Matrix that is a bot."""

    def __init__(self, name: str, settings: MatrixSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self.abilities = abilities_of(settings)
        self._settings = settings
        self._cursor = cursor
        http = Http(
            settings.homeserver,
            token=settings.access_token.reveal() if settings.access_token else "",
            user=settings.user,
            password=settings.password.reveal() if settings.password else "",
            timeout_s=settings.timeout_s,
        )
        self._api = Api(http)
        self._hearing = Hearing(name, self._api, settings)
        self._begun: Point | None = None
        """Where we began to hear, until it is saved."""

    async def open(self) -> None:
        try:
            self._hearing.me = await self._api.me()
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc

    async def close(self) -> None:
        await self._api.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Ask, take, and save how far that was. What was not saved is told again, to whoever asks
        next."""
        ending = asyncio.create_task(until.wait())
        try:
            since = await self._begin(inlet)
            while not until.is_set():
                asking = asyncio.create_task(self._news(since))
                try:
                    await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
                    if not asking.done():
                        return
                    sync = asking.result()
                finally:
                    await cancel_all([asking])
                if sync is None:
                    since = await self._begin(inlet, anew=True)
                    continue
                await self._hearing.take(sync, since, inlet)
                since = sync.next_batch
                await self._save(since)
        finally:
            await cancel_all([ending])

    async def _begin(self, inlet: Inlet, *, anew: bool = False) -> str:
        """Where to go on. A bot that was never here hears nothing of before, but who invites it."""
        saved = None if anew else (read_point(self._cursor.read()) or self._begun)
        if saved is not None and saved.of == self._hearing.me:
            self._hearing.told = saved.told
            return saved.since
        sync = await self._api.sync("", 0, self._settings.timeout_s)
        self._begun = self._point(sync.next_batch)
        await self._hearing.take(Sync(sync.next_batch, msgspec.structs.replace(sync.rooms, join={})), "", inlet)
        await self._save(sync.next_batch)
        return sync.next_batch

    async def _news(self, since: str) -> Sync | None:
        """None when the homeserver does not know the point any more."""
        try:
            return await self._api.sync(since, self._settings.poll_s, self._settings.timeout_s)
        except PostRefused as exc:
            log.error("messages missed", channel=self.name, reason=f"begins anew; {exc.reason}")
            return None

    async def _save(self, since: str) -> None:
        await self._cursor.save(msgspec.json.encode(self._point(since)))
        self._begun = None

    def _point(self, since: str) -> Point:
        return Point(self._hearing.me, since, self._hearing.told)

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        return HookAnswer(404)  # not called: there is no run mode with a webhook

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        return self._api.fetch(file)

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown)

    async def send(self, post: Post) -> str:
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        return await self._api.find(post, self._hearing.me)

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target.chat_id, self._hearing.me)
