"""The way out of one channel, on every replica: claims chats that are due and delivers each while
its lease is safe. What is delivered, in which order and how far is in Redis
(`shared.store.delivery.deliveries`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.delivery.chat_delivery import ChatDelivery
from gateway.delivery.chat_lease import ChatLease, ChatLeaseKeeper
from gateway.delivery.platform_calls import DeliveryContext
from gateway.platform.protocol import ChannelBroken, Platform
from shared.backoff import Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.ids import log_id
from shared.log import logger
from shared.media.store import MediaStore
from shared.settings.sections.gateways import DeliverySettings
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.tasks import cancel_all, close_all, completed, event_within

FINISH_S: Final = 1.3  # seconds that a call under way may take at the end of the process
GIVE_BACK_S: Final = 0.5
POLL_S: Final = 1.0  # the longest time between two looks for chats that are due: news may be lost

log = logger("delivery")


class Egress:
    """Delivers the chats of `platform`. The owner of `fanout` has it call `recheck` after a gap."""

    def __init__(
        self,
        platform: Platform,
        deliveries: DeliveryQueue,
        fanout: Fanout,
        settings: DeliverySettings,
        media: MediaStore,
        *,
        draining: asyncio.Event,
        on_broken: Callable[[ChannelBroken], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._deliveries = deliveries
        self._channel = deliveries.channel
        self._clock = clock
        self._draining = draining
        self._ending = asyncio.Event()
        self._chats = settings.chats
        self._context = DeliveryContext(
            platform=platform,
            deliveries=deliveries,
            fanout=fanout,
            media=media,
            draining=self._ending,
            full=asyncio.Event(),
            clock=clock,
            progress=settings.progress,
            call_s=settings.call_s,
            on_broken=on_broken,
        )
        self._active: dict[ChatLease, tuple[ChatDelivery, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()

    @property
    def chats(self) -> int:
        """The number of chats that this process delivers now."""
        return len(self._active)

    async def recheck(self) -> None:
        """Look for due chats, and read the state of every active one: news may have been missed."""
        self._wake.set()
        for delivery, _ in self._active.values():
            delivery.recheck()

    async def run(self) -> None:
        """Deliver until the process drains; then give every chat back, within two seconds."""
        await self._context.fanout.subscribe(self._deliveries.news, lambda _: self._wake.set())
        keeping = ChatLeaseKeeper(self._deliveries, self._active, clock=self._clock)
        chores = [asyncio.create_task(one) for one in (keeping.keep_renewing(), keeping.keep_fencing())]
        acquiring = asyncio.create_task(self._keep_acquiring())
        drained = asyncio.create_task(self._draining.wait())
        try:
            done, _ = await asyncio.wait({acquiring, drained, *chores}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {drained}:
                task.result()  # these end only by a bug
        finally:
            # The chores go on meanwhile: chats that finish must keep their leases.
            await close_all(
                partial(self._stop_acquiring, acquiring),
                self._finish,
                partial(cancel_all, [drained, *chores]),
            )

    async def acquire_once(self) -> float:
        """Claim due chats for the free slots; return the seconds until the next look."""
        room = self._chats - len(self._active)
        if room <= 0:
            self._context.full.set()
            return POLL_S
        self._context.full.clear()
        # An eighth of the free slots at a time, so that chats spread over the replicas.
        many = max(1, room // 8)
        acquired_at = self._clock.monotonic()
        chats, next_s = await self._deliveries.acquire(many)
        for chat in chats:
            if chat.owner_lost:
                log.info("chat taken over", channel=self._channel, session=log_id(chat.session))
            lease = ChatLease(chat, acquired_at=acquired_at, lease_s=self._deliveries.lease_s, clock=self._clock)
            delivery = ChatDelivery(lease, self._context)
            active = self._active.items()
            before = [task for other, (_, task) in active if other.session == chat.session]
            task = asyncio.create_task(self._deliver_chat(lease, delivery, before), name="chat")
            self._active[lease] = delivery, task
        return 0.0 if len(chats) == many else min(next_s, POLL_S)

    async def _deliver_chat(self, lease: ChatLease, delivery: ChatDelivery, before: list[asyncio.Task[None]]) -> None:
        try:
            # An earlier delivery of this chat has given it back and is about to end. Two would
            # share one subscription to the chat's news, and the first to end would drop it.
            if before:
                await asyncio.wait(before)
            await delivery.run()
        except asyncio.CancelledError:
            if self._ending.is_set() and lease.safe_s:
                await self._give_back(lease)
            elif not lease.safe_s:
                log.warning("chat lost", channel=self._channel, session=log_id(lease.session))
            raise
        except Exception:
            log.exception("chat not served", channel=self._channel, session=log_id(lease.session))
            await self._give_back(lease, delay_s=5.0)
        finally:
            self._active.pop(lease, None)
            self._wake.set()

    async def _give_back(self, lease: ChatLease, delay_s: float = 0.0) -> None:
        async def requeue() -> None:
            with contextlib.suppress(RedisAway, TimeoutError):
                async with asyncio.timeout(GIVE_BACK_S):
                    await self._deliveries.requeue(lease.chat, delay_s, unclear=lease.in_doubt, counts=bool(delay_s))

        # A second cancellation would leave the chat to nobody until its lease has lapsed.
        await completed(asyncio.create_task(requeue()))

    async def _stop_acquiring(self, acquiring: asyncio.Task[None]) -> None:
        """End it between two claims, if Redis answers soon: the chats of a claim that is cancelled on
        its way would belong to nobody until their leases have lapsed."""
        self._ending.set()
        self._wake.set()
        try:
            await asyncio.wait([acquiring], timeout=GIVE_BACK_S)
        finally:
            await cancel_all([acquiring])

    async def _keep_acquiring(self) -> None:
        backoff = Backoff()
        unavailable = False
        while not self._ending.is_set():
            self._wake.clear()
            try:
                wait_s = await self.acquire_once()
                if unavailable:
                    log.info("redis back", doing="delivery", channel=self._channel)
                unavailable = False
                backoff.reset()
            except RedisAway as exc:
                if not unavailable:
                    log.warning("redis away", doing="delivery", channel=self._channel, error=str(exc))
                unavailable = True
                await backoff.sleep()
                continue
            except Exception:
                # Keys that somebody filled with something else: the other channels go on.
                log.exception("chats not acquired", channel=self._channel)
                await backoff.sleep()
                continue
            if wait_s > 0 and not self._ending.is_set():
                await event_within(self._wake, wait_s)

    async def _finish(self) -> None:
        """End every delivery: between two lines at once, and within a line after a moment."""
        self._ending.set()
        await self.recheck()
        tasks = [task for _, task in self._active.values()]
        if tasks:
            try:
                await asyncio.wait(tasks, timeout=FINISH_S)
            finally:
                await cancel_all(tasks)
