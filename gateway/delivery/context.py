"""The parts that all deliveries of one channel share."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.delivery.line_posts import PostBuilder
from gateway.delivery.platform_calls import PlatformCalls
from gateway.platform.protocol import Platform
from shared.clock import Clock
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout


class DeliveryContext(msgspec.Struct, frozen=True, kw_only=True):
    """The platform, the stores and the settings of a channel's deliveries. `draining` is set when
    the process ends; `progress` shows what a turn is doing before it has words."""

    platform: Platform
    deliveries: DeliveryQueue
    fanout: Fanout
    calls: PlatformCalls
    posts: PostBuilder
    draining: asyncio.Event
    clock: Clock
    progress: bool
