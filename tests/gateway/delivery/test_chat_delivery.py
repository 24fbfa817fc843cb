"""A delivery of one chat whose end comes at a bad moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gateway.delivery.chat_delivery import ChatDelivery
from shared.settings.sections.gateways import DeliverySettings
from tests.helpers.clock import HandClock


class PlayedFanout:
    """Confirms no subscription."""

    def __init__(self) -> None:
        self.followed: set[str] = set()
        self.asked = asyncio.Event()

    async def follow_chat(self, session: str, _: object) -> None:
        self.followed.add(session)
        self.asked.set()
        await asyncio.Event().wait()

    async def unfollow_chat(self, session: str) -> None:
        self.followed.discard(session)


async def test_a_delivery_that_ends_before_its_chat_is_followed_leaves_no_subscription() -> None:
    fanout = PlayedFanout()
    context: Any = SimpleNamespace(
        platform=None, deliveries=None, fanout=fanout, clock=HandClock(), progress=DeliverySettings().progress
    )
    chat = SimpleNamespace(shown="", pending=(), streamed_message=None, pending_stream=None)
    lease: Any = SimpleNamespace(session="fake:a", chat=chat, ended=False)
    running = asyncio.create_task(ChatDelivery(lease, context).run())
    await fanout.asked.wait()
    running.cancel()
    await asyncio.wait({running})
    assert fanout.followed == set()
