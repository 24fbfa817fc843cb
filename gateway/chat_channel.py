"""A channel on a chat platform: opens the platform, listens, delivers replies, and closes it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from gateway.delivery.egress import Egress
from gateway.delivery.line_posts import fits_one_post
from gateway.ingress.ingest import Ingress
from gateway.platform.inlet import PlatformInlet
from gateway.platform.listening import ListenerCursor, PlatformListener, locks_of
from gateway.platform.opening import ChannelState, open_platform
from gateway.platform.protocol import ChannelBroken, HookAnswer, HookRequest
from gateway.platform.registry import PlatformContext, make_platform
from gateway.platform.webhooks import PlacedInlet, WebhookServer
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import SettingsError
from shared.media.store import MediaStore
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.store.fleet.presence import channel_state, channel_why
from shared.tasks import cancel_all

CLOSE_S: Final = 1.0


class ChatChannel:
    """One channel of a process, with `[channels.<name>]`. Making it connects to nothing, and raises
    SettingsError, one line a problem. Its lines go out by delivery, whichever replica has the
    chat."""

    def __init__(
        self, name: str, settings: Settings, client: RedisClient, hooks: WebhookServer, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings
        self._client = client
        self._hooks = hooks
        self._clock = clock
        self._cursor = ListenerCursor()
        table = settings.channels.get(name)
        if table is None:
            raise SettingsError(f"there is no [channels.{name}] in the settings; write it, or leave the channel out")
        context = PlatformContext(name=name, table=table, settings=settings, cursor=self._cursor)
        made = make_platform(context)
        self._platform = platform = made.platform
        self._rules = made.rules
        self.name = name
        self.abilities = platform.abilities
        self.run_mode = platform.run_mode
        self._egress: Egress | None = None
        self._listening: PlatformListener | None = None
        self._state = ChannelState(name)
        if self.run_mode == "webhook":
            hooks.expect(name)

    @property
    def why_off(self) -> str:
        """The reason why the channel does not work now; '' when it does."""
        return self._state.why

    def facts(self) -> dict[str, str]:
        listens = str(bool(self._listening and self._listening.listens)).lower()
        facts = {
            channel_state(self.name): self._state.name,
            f"{self.name}.run": self.run_mode,
            f"{self.name}.listens": "hook" if self.run_mode == "webhook" else listens,
            f"{self.name}.chats": str(self._egress.chats if self._egress else 0),
        }
        return facts | ({channel_why(self.name): self.why_off} if self.why_off else {})

    async def listen(self, sink: Ingress, draining: asyncio.Event) -> None:
        """Open, listen and deliver until `draining`; after a fault of the platform, again."""
        sink.limit_questions(self.name, lambda line: fits_one_post(line, self._platform.render))
        try:
            while await open_platform(self._platform, self._state, draining):
                await self._run_opened(sink, draining)
        finally:
            self._state.set_state("closed", self.why_off)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._platform.close()

    async def _run_opened(self, sink: Ingress, draining: asyncio.Event) -> None:
        """Listen and deliver on an opened platform until the process drains or it breaks."""
        lease_s = self._settings.worker.lease_s
        deliveries = DeliveryQueue(
            self._client, self.name, lease_s=lease_s, resend_guard=self.abilities.resend_guard, clock=self._clock
        )
        ending = asyncio.Event()
        fanout = Fanout(self._client, on_gap=self._recheck)
        media = MediaStore(self._settings.media)
        self._egress = Egress(
            self._platform,
            deliveries,
            fanout,
            self._settings.delivery,
            media,
            draining=ending,
            on_broken=self._state.break_down,
            clock=self._clock,
        )
        locks = locks_of(self._platform, self._client, lease_s=lease_s, clock=self._clock)
        self._listening = PlatformListener(
            self._platform, locks, self._cursor, fanout, draining=ending, clock=self._clock
        )
        inlet = PlatformInlet(
            self._platform, self._rules, sink=sink, notes=deliveries, client=self._client, settings=self._settings
        )
        following = asyncio.create_task(fanout.run(), name="fanout")
        work = [asyncio.create_task(self._egress.run(), name="egress")]
        work.append(asyncio.create_task(self._receive(inlet, ending), name="listening"))
        stops = [asyncio.create_task(event.wait()) for event in (draining, self._state.broken)]
        try:
            await asyncio.wait([*work, *stops], return_when=asyncio.FIRST_COMPLETED)
            # Both parts finish what is under way before anything is cancelled.
            ending.set()
            await asyncio.wait(work)
            for task in work:
                task.result()
        finally:
            await cancel_all([*work, *stops, following])

    async def _receive(self, inlet: PlatformInlet, ending: asyncio.Event) -> None:
        assert self._listening is not None
        if self.run_mode != "webhook":
            try:
                await self._listening.run(inlet)
            except ChannelBroken as broken:
                self._state.break_down(broken)
            return

        placed = PlacedInlet(inlet, self._hooks)

        async def answer(request: HookRequest) -> HookAnswer:
            return await self._platform.hook(request, placed)

        self._hooks.set_handler(self.name, answer)
        try:
            await ending.wait()
        finally:
            self._hooks.set_handler(self.name, None)

    async def _recheck(self) -> None:
        if self._egress is not None:
            await self._egress.recheck()
