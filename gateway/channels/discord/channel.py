"""Discord: one bot, whose gateway connection is held by one replica at a time. It listens on all
its shards, and saves how far events are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import Any, Final

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.cursor import (
    ChatCache,
    DiscordCursor,
    GatewaySession,
    KnownChannel,
    ShardProgress,
    decode_cursor,
    encode_cursor,
    new_session,
)
from gateway.channels.discord.event_queue import EventQueue, EventWindow
from gateway.channels.discord.parse import written_ms
from gateway.channels.discord.receiver import EventReceiver
from gateway.channels.discord.render import render_reply
from gateway.channels.discord.settings import DiscordSettings, read_discord
from gateway.channels.discord.shard import Shard
from gateway.channels.discord.wire import DiscordIdentity, Interaction, MessagesDeleted
from gateway.channels.unsupported import cannot_find, cannot_hook
from gateway.platform.protocol import Abilities, Inlet, Post, PostTarget, Rate, RemoteFile, RunMode, Throttled
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext
from shared.errors import RedisAway
from shared.log import logger
from shared.network.outgoing import for_channel
from shared.tasks import cancel_all, close_all

SAVE_EVERY_S: Final = 1.0
FINISH_S: Final = 0.8
BEGIN_EVERY_S: Final = 5.0  # Discord allows `max_concurrency` new sessions per this time
ABILITIES: Final = Abilities(
    run_modes=("exclusive",),
    resend_guard="key",
    edit_every_s=1.5,
    typing_every_s=8.0,
    buttons=25,
    media=True,
    threads=True,
    # Fifty calls a second in all (docs.discord.com/developers/topics/rate-limits), also those that
    # are no messages; of a channel it says by its headers that it takes five messages in five
    # seconds, and as many edits.
    rates=(Rate("bot", 35.0, 10), Rate("chat", 0.7, 2, "posts"), Rate("chat", 0.7, 2, "edits")),
)

log = logger("discord")


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_discord(given.name, given.table)
    return BuiltPlatform(DiscordChannel(given.name, settings, given.cursor), settings)


class DiscordChannel:
    """A Discord bot."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    find = staticmethod(cannot_find)
    hook = staticmethod(cannot_hook)

    def __init__(self, name: str, settings: DiscordSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self._settings = settings
        self._cursor = cursor
        self._me = DiscordIdentity("", "")
        self._api = DiscordApi(
            name,
            settings.token.reveal(),
            settings.api,
            files_from=settings.files_from,
            timeout_s=settings.timeout_s,
            outgoing=for_channel(settings.proxy),
        )

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

    async def typing(self, target: PostTarget) -> None:
        await self._api.typing(target)

    async def open(self) -> None:
        self._me = await self._api.identify()

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        await DiscordListener(self.name, self._settings, self._api, self._me, self._cursor).run(inlet, until)


class SessionStarts:
    """A limiter of new sessions, as Discord requires."""

    def __init__(self, api: DiscordApi, *, every_s: float = BEGIN_EVERY_S) -> None:
        self._api = api
        self._every_s = every_s
        self._turns = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self._next_at = defaultdict[int, float](float)

    async def wait_for_start(self, shard: int) -> None:
        """Return once this shard may start a session. Raises Throttled when the quota is used."""
        limit = (await self._api.gateway_info()).session_start_limit
        if limit.remaining < 1:
            raise Throttled(limit.reset_after / 1000)
        group = shard % max(1, limit.max_concurrency)
        loop = asyncio.get_running_loop()
        async with self._turns[group]:
            await asyncio.sleep(self._next_at[group] - loop.time())
            self._next_at[group] = loop.time() + self._every_s


class ShardReader:
    """The event reader of one shard."""

    def __init__(
        self,
        number: int,
        reading: ShardProgress,
        receiver: EventReceiver,
        intake: EventQueue,
        chats: Callable[[int], list[KnownChannel]],
        on_session: Callable[[], None],
    ) -> None:
        self._number = number
        self._receiver = receiver
        self._intake = intake
        self._chats = chats
        self._on_session = on_session
        self._session = reading.session
        self._window = EventWindow(reading.session.seq if reading.session else 0, reading.since_ms)
        self._catching_up_since_ms = 0 if reading.session else reading.since_ms
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def progress(self) -> ShardProgress:
        """The position up to which everything is accepted. While catching up it stays at the old
        one, so that a successor starts there."""
        if self._session is None or self._catching_up is not None:
            return ShardProgress(self._catching_up_since_ms)
        session = GatewaySession(self._session.id, self._session.url, self._window.seq)
        return ShardProgress(self._window.since_ms, session)

    async def on_event(self, seq: int, name: str, data: Any) -> None:
        """Handle an event from the shard."""
        if name == "READY":
            self._begin_session(new_session(seq, data))
            return
        event = self._receiver.decode(name, data)
        if event is None or event.channel_id is None:
            self._window.skip(seq)
            return
        if isinstance(event, Interaction):
            # Discord fails an interaction after three seconds, so it is confirmed before its turn
            # comes.
            self._intake.start_detached(self._receiver.confirm_press(event))
        at_ms = 0 if isinstance(event, MessagesDeleted) else written_ms(event.id)
        done = partial(self._window.complete, self._window.append(seq, at_ms))
        await self._intake.submit(event.channel_id, partial(self._receiver.accept, event), done)

    def stop(self) -> None:
        """Stop; whatever was not caught up with stays unread."""
        if self._catching_up is not None:
            self._catching_up.cancel()

    def _begin_session(self, session: GatewaySession) -> None:
        """Start a new session. Each chat's messages since the last are read before its new ones."""
        since_ms = self.progress.since_ms
        self._session = session
        self._window = EventWindow(session.seq, since_ms or int(time.time() * 1000))
        self.stop()
        self._on_session()
        if not since_ms:
            return
        self._catching_up_since_ms = since_ms
        # Taken before the catch-up tasks start: the session counts as read only when older work is
        # done, too.
        waits = {*self._intake.working}
        chats = self._chats(self._number)
        log.info("catching up", shard=self._number, chats=len(chats))
        for chat in chats:
            work = partial(self._receiver.catch_up, chat, since_ms)
            waits.add(self._intake.start(str(chat.channel), work))
        self._catching_up = asyncio.create_task(self._wait_for_catch_up(waits), name="catch up")

    async def _wait_for_catch_up(self, waits: Collection[asyncio.Task[None]]) -> None:
        if waits:
            await asyncio.wait(waits)
        self._catching_up = None


class DiscordListener:
    """Everything one bot receives while this process listens."""

    def __init__(
        self, name: str, settings: DiscordSettings, api: DiscordApi, me: DiscordIdentity, cursor: Cursor
    ) -> None:
        self._name = name
        self._settings = settings
        self._api = api
        self._me = me
        self._cursor = cursor
        self._saved = cursor.read()
        self._chats = ChatCache(())
        self._readers: list[ShardReader] = []
        self._session_began = asyncio.Event()

    async def run(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Listen until `until` is set. Raises NotDelivered, ChannelBroken."""
        name = self._name
        settings = self._settings
        api = self._api
        gateway = await api.gateway_info()
        may_begin = SessionStarts(api).wait_for_start
        known = decode_cursor(self._saved)
        count = settings.shards or gateway.shards
        self._chats = ChatCache(known.chats)
        intake = EventQueue()
        receiver = EventReceiver(name, settings, api, self._me, inlet, self._chats)

        def chats_of(number: int) -> list[KnownChannel]:
            return [chat for chat in self._chats if chat.shard(count) == number]

        connections = []
        for nth, reading in enumerate(known.for_shards(count)):
            reader = ShardReader(nth, reading, receiver, intake, chats_of, self._session_began.set)
            session = reading.session
            url = gateway.url
            shard = Shard(name, settings, api, nth, count, session, url, may_begin)
            self._readers.append(reader)
            connections.append(asyncio.create_task(shard.run(reader.on_event), name="shard"))
        saving = asyncio.create_task(self._keep_saving(), name="save")
        stops = [asyncio.create_task(event.wait()) for event in (until, intake.broken)]
        try:
            tasks = [*connections, saving, *stops]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - set(stops):
                task.result()
            if intake.failure is not None:
                raise intake.failure
            for task in connections:
                task.cancel()  # nothing more comes
            await intake.finish(FINISH_S)
            with contextlib.suppress(RedisAway):
                await self._save()
        finally:
            for reader in self._readers:
                reader.stop()
            for task in (*connections, saving, *stops):
                task.cancel()
            await close_all(intake.close, partial(cancel_all, [*connections, saving, *stops]))

    async def _keep_saving(self) -> None:
        """Save every second, and at once when a session has begun, or nothing can be replayed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_EVERY_S):
                    await self._session_began.wait()
            self._session_began.clear()
            with contextlib.suppress(RedisAway):
                await self._save()

    async def _save(self) -> None:
        """Save the cursor if it has changed."""
        known = DiscordCursor(tuple(reader.progress for reader in self._readers), tuple(self._chats))
        if (value := encode_cursor(known)) != self._saved:
            await self._cursor.save(value)
            self._saved = value
