"""Listens to all shards of a bot, and remembers how far all is taken."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from gateway.channels.discord.api import Api
from gateway.channels.discord.intake import Intake, Window
from gateway.channels.discord.known import Chats, Known, Reading, Session, read_known, write_known
from gateway.channels.discord.parse import Me, said_ms
from gateway.channels.discord.settings import DiscordSettings
from gateway.channels.discord.shard import Shard
from gateway.channels.discord.taker import Taker
from gateway.channels.discord.wire import Gone, Press
from gateway.platform.protocol import Inlet, Throttled
from gateway.platform.registry import Cursor
from shared.errors import RedisAway
from shared.log import logger
from shared.tasks import cancel_all

SAVE_EVERY_S: Final = 1.0
FINISH_S: Final = 0.8
BEGIN_EVERY_S: Final = 5.0
"""Discord takes so many new sessions as it says in this time."""

log = logger("discord")


class Begins:
    """Rations new sessions, as Discord wants it."""

    def __init__(self, api: Api, *, every_s: float = BEGIN_EVERY_S) -> None:
        self._api = api
        self._every_s = every_s
        self._turns = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self._next_at = defaultdict[int, float](float)

    async def wait(self, shard: int) -> None:
        """Returns when this shard may begin one. Raises Throttled when there are no more today."""
        limit = (await self._api.entrance()).session_start_limit
        if limit.remaining < 1:
            raise Throttled(limit.reset_after / 1000)
        group, loop = shard % max(1, limit.max_concurrency), asyncio.get_running_loop()
        async with self._turns[group]:
            await asyncio.sleep(self._next_at[group] - loop.time())
            self._next_at[group] = loop.time() + self._every_s


class Ear:
    """What is heard through one shard."""

    def __init__(
        self,
        number: int,
        shards: int,
        reading: Reading,
        taker: Taker,
        intake: Intake,
        chats: Chats,
        *,
        on_session: Callable[[], None],
    ) -> None:
        self._number = number
        self._shards = shards
        self._taker = taker
        self._intake = intake
        self._chats = chats
        self._on_session = on_session
        self._session = reading.session
        self._window = Window(reading.session.seq if reading.session else 0, reading.since_ms)
        self._behind = 0 if reading.session else reading.since_ms
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def reading(self) -> Reading:
        """How far all is taken. As long as it is catching up, as before that: whoever comes next
        begins with it."""
        if self._session is None or self._catching_up is not None:
            return Reading(self._behind)
        return Reading(self._window.since_ms, Session(self._session.id, self._session.url, self._window.seq))

    async def heed(self, seq: int, name: str, data: Any) -> None:
        """An event came."""
        if name == "READY":
            self._begin(Session(str(data["session_id"]), str(data["resume_gateway_url"]), seq))
            return
        event = self._taker.read(name, data)
        if event is None or event.channel_id is None:
            self._window.passed(seq)
            return
        if isinstance(event, Press):
            self._intake.aside(self._taker.answer(event))
        mark = self._window.came(seq, 0 if isinstance(event, Gone) else said_ms(event.id))
        await self._intake.take(event.channel_id, partial(self._taker.take, event), partial(self._window.taken, mark))

    def stop(self) -> None:
        """It ends: what it has not caught up with stays so."""
        if self._catching_up is not None:
            self._catching_up.cancel()

    def _begin(self, session: Session) -> None:
        """A new session. What was said since the last one is read in each chat, before what is said
        there now."""
        since_ms = self.reading.since_ms
        self._session = session
        self._window = Window(session.seq, since_ms or int(time.time() * 1000))
        self.stop()
        self._on_session()
        if not since_ms:
            return
        self._behind = since_ms
        waits = self._intake.working
        chats = [chat for chat in self._chats if chat.shard(self._shards) == self._number]
        log.info("catching up", shard=self._number, chats=len(chats))
        waits |= {
            self._intake.begin(str(chat.channel), partial(self._taker.catch_up, chat, since_ms)) for chat in chats
        }
        self._catching_up = asyncio.create_task(self._catch_up(waits), name="catch up")

    async def _catch_up(self, waits: Collection[asyncio.Task[None]]) -> None:
        if waits:
            await asyncio.wait(waits)
        self._catching_up = None


class Listener:
    """Everything that one bot hears, while this process listens."""

    def __init__(self, name: str, settings: DiscordSettings, api: Api, me: Me, cursor: Cursor) -> None:
        self._name = name
        self._settings = settings
        self._api = api
        self._me = me
        self._cursor = cursor
        self._saved = cursor.read()
        self._chats = Chats(())
        self._ears: list[Ear] = []
        self._began = asyncio.Event()

    async def run(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Until the event is set. Raises NotDelivered, ChannelBroken."""
        entrance = await self._api.entrance()
        known, shards = read_known(self._saved), self._settings.shards or entrance.shards
        readings = known.for_shards(shards)
        self._chats = Chats(known.chats)
        intake = Intake()
        taker = Taker(self._name, self._settings, self._api, self._me, inlet, self._chats)
        self._ears = [
            Ear(nth, shards, readings[nth], taker, intake, self._chats, on_session=self._began.set)
            for nth in range(shards)
        ]
        begins = Begins(self._api)
        hearing = [
            asyncio.create_task(
                self._shard(nth, shards, readings[nth], entrance.url, begins).run(ear.heed), name="shard"
            )
            for nth, ear in enumerate(self._ears)
        ]
        saving = asyncio.create_task(self._keep_saving(), name="save")
        stops = [asyncio.create_task(event.wait()) for event in (until, intake.broken)]
        try:
            done, _ = await asyncio.wait([*hearing, saving, *stops], return_when=asyncio.FIRST_COMPLETED)
            for task in done - set(stops):
                task.result()
            if intake.why is not None:
                raise intake.why
            for task in hearing:
                task.cancel()  # nothing more comes
            await intake.finish(FINISH_S)
            with contextlib.suppress(RedisAway):
                await self._save()
        finally:
            for ear in self._ears:
                ear.stop()
            for task in (*hearing, saving, *stops):
                task.cancel()
            await intake.close()
            await cancel_all([*hearing, saving, *stops])

    def _shard(self, number: int, count: int, reading: Reading, gateway: str, begins: Begins) -> Shard:
        return Shard(
            number,
            count,
            reading.session,
            key=f"channels.{self._name}",
            token=self._settings.token.reveal(),
            message_content=self._settings.message_content,
            gateway=gateway,
            connect=self._api.connect,
            may_begin=begins.wait,
        )

    async def _keep_saving(self) -> None:
        """Every second, and at once when a session has begun: without it nothing is replayed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_EVERY_S):
                    await self._began.wait()
            self._began.clear()
            with contextlib.suppress(RedisAway):
                await self._save()

    async def _save(self) -> None:
        """Remember how far all is taken, if that has changed."""
        known = Known(tuple(ear.reading for ear in self._ears), tuple(self._chats))
        if (value := write_known(known)) != self._saved:
            await self._cursor.save(value)
            self._saved = value
