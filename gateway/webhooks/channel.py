"""The channel of webhooks that are not those of a chat platform."""

from __future__ import annotations

import asyncio

from gateway.ingress.ingest import Ingress
from gateway.platform.webhooks import WebhookServer
from gateway.webhooks.incoming import IncomingWebhooks
from shared.settings import Settings
from shared.settings.sections.webhooks import HOOK
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits


class HookChannel:
    """Takes the calls of `[webhooks.in.<name>]`, at `/hooks/in/` of the server of webhooks."""

    def __init__(self, settings: Settings, client: RedisClient, hooks: WebhookServer) -> None:
        self.name = HOOK
        self._incoming = settings.webhooks.in_
        self._hooks = hooks
        self._answers = IncomingWebhooks(self._incoming, Inbox(client, InboxLimits.of(settings)), hooks.place)
        if self._incoming:
            hooks.expect("in")

    def facts(self) -> dict[str, str]:
        return {"hook.in": " ".join(self._incoming)}

    async def listen(self, ingress: Ingress, draining: asyncio.Event) -> None:
        """Take calls until `draining`."""
        if self._incoming:
            self._hooks.set_handler("in", self._answers.answer)
        try:
            await draining.wait()
        finally:
            if self._incoming:
                self._hooks.set_handler("in", None)


def make(settings: Settings, client: RedisClient, hooks: WebhookServer) -> HookChannel:
    """Make the channel. Nothing is connected."""
    return HookChannel(settings, client, hooks)
