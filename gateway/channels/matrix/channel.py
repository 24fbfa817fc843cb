"""Matrix: one user of a homeserver; one replica listens, every replica sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.channels.matrix.api import MatrixApi
from gateway.channels.matrix.http import MatrixHttp
from gateway.channels.matrix.receiver import MatrixCursor, SyncReceiver, decode_cursor
from gateway.channels.matrix.render import render_reply
from gateway.channels.matrix.settings import MatrixSettings, read_matrix
from gateway.channels.matrix.wire import Sync
from gateway.channels.unsupported import cannot_hook
from gateway.platform.protocol import Abilities, Inlet, Post, PostRefused, PostTarget, Rate, RemoteFile, RunMode
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext
from shared.log import logger
from shared.network.outgoing import for_channel
from shared.tasks import until_first

EDIT_S: Final = 1.5
TYPING_S: Final = 6.0

log = logger("matrix")


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_matrix(given.name, given.table)
    return BuiltPlatform(MatrixChannel(given.name, settings, given.cursor), settings)


class MatrixChannel:
    """A Matrix user that is a bot."""

    render = staticmethod(render_reply)
    hook = staticmethod(cannot_hook)

    def __init__(self, name: str, settings: MatrixSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        # Transaction ids are scoped to a device: with a token shared by all replicas they prevent
        # duplicates. Where each replica logs in as a device of its own, messages are looked up.
        self.abilities = Abilities(
            run_modes=("exclusive",),
            resend_guard="look-up" if settings.access_token is None else "key",
            edit_every_s=max(EDIT_S, 1.0 / settings.per_s),
            typing_every_s=TYPING_S,
            media=True,
            threads=True,
            rates=(Rate("bot", settings.per_s, settings.burst),),
        )
        self._settings = settings
        self._cursor = cursor
        http = MatrixHttp(
            settings.homeserver,
            token=settings.access_token.reveal() if settings.access_token else "",
            user=settings.user,
            password=settings.password.reveal() if settings.password else "",
            timeout_s=settings.timeout_s,
            outgoing=for_channel(settings.proxy),
        )
        self._api = MatrixApi(http)
        self._reader = SyncReceiver(name, self._api, settings)
        self._unsaved_start: MatrixCursor | None = None
        """The starting point, until it is saved."""

    async def open(self) -> None:
        await self._api.open()

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        return self._api.fetch(file)

    async def close(self) -> None:
        await self._api.close()

    async def send(self, post: Post) -> str:
        """Send a post and return its id. Raises NotDelivered."""
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered."""
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        """Return the id of a post that an earlier try showed, or None. Raises NotDelivered."""
        return await self._api.find_post(post)

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target)

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Sync, accept, and save the position. Unsaved news are sent again to whoever asks next."""
        since = await self._start_point(inlet)
        while not until.is_set():
            asking = asyncio.create_task(self._next_sync(since))
            if asking not in await until_first(asking, asyncio.create_task(until.wait())):
                return
            sync = asking.result()
            if sync is None:
                since = await self._start_point(inlet, afresh=True)
                continue
            await self._reader.accept(sync, since, inlet)
            since = sync.next_batch
            await self._save(since)

    async def _start_point(self, inlet: Inlet, *, afresh: bool = False) -> str:
        """Return where to resume: without a cursor, after all but invitations."""
        saved = None if afresh else (decode_cursor(self._cursor.read()) or self._unsaved_start)
        if saved is not None and saved.of == self._api.me:
            self._reader.notified_rooms = saved.notified_rooms
            return saved.since
        sync = await self._api.sync("", 0, self._settings.timeout_s)
        self._unsaved_start = self._cursor_at(sync.next_batch)
        invitations = Sync(sync.next_batch, replace(sync.rooms, join={}))
        await self._reader.accept(invitations, "", inlet)
        await self._save(sync.next_batch)
        return sync.next_batch

    async def _next_sync(self, since: str) -> Sync | None:
        """Return the next batch; None if the homeserver no longer knows the point."""
        try:
            return await self._api.sync(since, self._settings.poll_s, self._settings.timeout_s)
        except PostRefused as exc:
            log.error("messages missed", channel=self.name, reason=f"begins afresh; {exc.reason}")
            return None

    async def _save(self, since: str) -> None:
        await self._cursor.save(msgspec.json.encode(self._cursor_at(since)))
        self._unsaved_start = None

    def _cursor_at(self, since: str) -> MatrixCursor:
        return MatrixCursor(self._api.me, since, self._reader.notified_rooms)
