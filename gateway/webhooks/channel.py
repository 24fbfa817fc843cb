"""The channel of webhooks that are not those of a chat platform: calls of programs come in, and calls
to programs go out by delivery."""

from __future__ import annotations

import asyncio

from gateway.delivery.egress import Egress
from gateway.ingress.ingest import Ingress
from gateway.platform.protocol import ChannelBroken
from gateway.platform.webhooks import WebhookServer
from gateway.webhooks.endpoints import Endpoints
from gateway.webhooks.fan_out import NoticeFanOut
from gateway.webhooks.incoming import IncomingWebhooks
from shared.guards.fetch import LookUp
from shared.log import logger
from shared.media.store import MediaStore
from shared.settings import Settings
from shared.settings.sections.webhooks import HOOK
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tasks import cancel_all

INCOMING_PATH = "in"

log = logger("webhooks")


class HookChannel:
    """Takes the calls of `[webhooks.in.<name>]`, at `/hooks/in/` of the server of webhooks, and calls
    the endpoints of `[webhooks.out.<name>]`. Raises SettingsError."""

    def __init__(
        self, settings: Settings, client: RedisClient, hooks: WebhookServer, *, look_up: LookUp | None = None
    ) -> None:
        self.name = HOOK
        self._settings = settings
        self._client = client
        self._incoming = settings.webhooks.in_
        self._outgoing = settings.webhooks.out
        self._hooks = hooks
        self._answers = IncomingWebhooks(self._incoming, Inbox(client, InboxLimits.of(settings)), hooks.place)
        self._endpoints = Endpoints(self._outgoing, look_up=look_up) if self._outgoing else None
        if self._incoming:
            hooks.expect(INCOMING_PATH)

    def facts(self) -> dict[str, str]:
        return {"hook.in": " ".join(self._incoming), "hook.out": " ".join(self._outgoing)}

    async def listen(self, ingress: Ingress, draining: asyncio.Event) -> None:
        """Take calls, and call endpoints, until `draining`."""
        if self._incoming:
            self._hooks.set_handler(INCOMING_PATH, self._answers.answer)
        try:
            if self._endpoints is None:
                await draining.wait()
            else:
                await self._deliver(self._endpoints, draining)
        finally:
            if self._incoming:
                self._hooks.set_handler(INCOMING_PATH, None)

    async def _deliver(self, endpoints: Endpoints, draining: asyncio.Event) -> None:
        settings = self._settings
        client = self._client
        deliveries = DeliveryQueue(client, HOOK, lease_s=settings.worker.lease_s, resend_guard="key")
        fan_out = NoticeFanOut(client, self._outgoing)

        async def recheck() -> None:
            fan_out.news.set()
            await egress.recheck()

        fanout = Fanout(client, on_gap=recheck)
        egress = Egress(
            endpoints,
            deliveries,
            fanout,
            settings.delivery,
            MediaStore(settings.media),
            draining=draining,
            on_broken=_log_broken,
        )
        following = asyncio.create_task(fanout.run(), name="fanout")
        work = [asyncio.create_task(fan_out.run(draining)), asyncio.create_task(egress.run())]
        drained = asyncio.create_task(draining.wait())
        log.info("endpoints served", endpoints=sorted(self._outgoing))
        try:
            await fanout.subscribe(keys.NOTICE_NEWS, lambda _: fan_out.news.set())
            await asyncio.wait([*work, drained], return_when=asyncio.FIRST_COMPLETED)
            fan_out.news.set()
            # A part that ended before the process drains has a bug, which ends the other.
            for task in work:
                if task.done() and not draining.is_set():
                    task.result()
            await asyncio.wait(work)
            for task in work:
                task.result()
        finally:
            await cancel_all([*work, drained, following])


def _log_broken(broken: ChannelBroken) -> None:
    log.error("endpoints broken", reason=str(broken))


def make(settings: Settings, client: RedisClient, hooks: WebhookServer) -> HookChannel:
    """Make the channel. Nothing is connected."""
    return HookChannel(settings, client, hooks)
