"""Calls of a chat platform's API: one try each, with a limit of time, and each counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.delivery.chat_lease import ChatLease
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    PostRefused,
    Throttled,
)
from shared.errors import LeaseLost
from shared.log import logger
from shared.metrics import DELIVERY_CALLS

OUTCOMES: Final[dict[type[NotDelivered], str]] = {
    Throttled: "throttled",
    MarkupRefused: "markup",
    PostRefused: "refused",
    ChatClosed: "closed",
    NotAccepted: "not_accepted",
    MaybeSent: "unclear",
}

T = TypeVar("T")

log = logger("delivery")


class ChannelFault(MaybeSent):
    """The channel's own code broke; so nobody knows whether the post arrived."""


class PlatformCalls:
    """The calls of one channel. `on_broken` is told when the platform says that a person must mend
    something."""

    def __init__(self, channel: str, *, call_s: float, on_broken: Callable[[ChannelBroken], None]) -> None:
        self._channel = channel
        self._call_s = call_s
        self._on_broken = on_broken

    async def run(self, lease: ChatLease, call: Callable[[], Awaitable[T]], *, within_s: float | None = None) -> T:
        """Make a call while the chat is safely ours. Raises NotDelivered in one of its forms, and
        LeaseLost when it was not made because the lease is in doubt."""
        if not lease.safe_s:
            raise LeaseLost("the lease on a chat is in doubt; nothing is sent")
        outcome = "broken"
        limit_s = self._call_s if within_s is None else min(within_s, self._call_s)
        try:
            async with asyncio.timeout(limit_s):
                result = await call()
            outcome = "ok"
            return result
        except TimeoutError:
            outcome = "unclear"
            raise MaybeSent(f"no answer within {limit_s:g} s") from None
        except NotDelivered as exc:
            outcome = next((word for kind, word in OUTCOMES.items() if isinstance(exc, kind)), "unclear")
            raise
        except ChannelBroken as exc:
            self._on_broken(exc)
            raise NotAccepted(str(exc)) from exc
        except asyncio.CancelledError:
            outcome = "unclear"
            raise
        except Exception as exc:
            log.exception("call of a platform broke", channel=self._channel)
            raise ChannelFault(f"{type(exc).__name__} in the channel's code") from exc
        finally:
            DELIVERY_CALLS.labels(self._channel, outcome).inc()
