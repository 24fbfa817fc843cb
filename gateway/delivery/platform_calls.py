"""Calls of a chat platform's API: the budgets that they take from, and one limited try each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from gateway.delivery.chat_lease import ChatLease
from gateway.platform.protocol import (
    Abilities,
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Platform,
    PostRefused,
    PostTarget,
    Rate,
    RateOf,
    Throttled,
)
from shared.clock import Clock
from shared.errors import LeaseLost
from shared.log import logger
from shared.media.store import MediaStore
from shared.metrics import DELIVERY_CALLS
from shared.store.delivery.deliveries import DeliveryQueue, RateKey
from shared.store.delivery.fanout import Fanout

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


class Rates(msgspec.Struct, frozen=True):
    """The budgets of one target. Calls that a platform counts together share a budget."""

    all: tuple[tuple[Rate, RateKey], ...] = ()

    @property
    def posts(self) -> list[RateKey]:
        """The budgets of a new message."""
        return self._of("posts")

    @property
    def edits(self) -> list[RateKey]:
        """The budgets of an edit."""
        return self._of("edits")

    @property
    def typing(self) -> list[RateKey]:
        """The budgets of "is typing", which does not count as a message of the chat."""
        return spare(key for rate, key in self.all if rate.scope == "bot" and rate.of == "all")

    def _of(self, kind: RateOf) -> list[RateKey]:
        return [key for rate, key in self.all if rate.of in ("all", kind)]


def rates_of(target: PostTarget, abilities: Abilities, *, group: bool) -> Rates:
    """Return the platform's budgets for a target. Threads share those of their chat; two rates of
    one kind, such as one a second and one a minute, are two budgets."""
    kinds = Counter[str]()
    found = []
    for rate in abilities.rates:
        kind = rate.scope if rate.of == "all" else f"{rate.of}:{rate.scope}"
        kinds[kind] += 1
        if rate.scope != "group" or group:
            name = kind if kinds[kind] == 1 else f"{kinds[kind]}:{kind}"
            name = name if rate.scope == "bot" else f"{name}:{target.chat_id}"
            found.append((rate, RateKey(name, rate.per_s, rate.burst)))
    return Rates(tuple(found))


def spare(keys: Iterable[RateKey]) -> list[RateKey]:
    """Return the budgets, once each, for calls that leave half of a burst to replies."""
    found = {key.name: key for key in keys}
    return [msgspec.structs.replace(key, reserve=key.burst // 2) for key in found.values()]


class ChannelFault(MaybeSent):
    """The channel's own code broke, so the post may or may not have arrived."""


class DeliveryContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all deliveries of one channel share. `draining` is set when the process ends,
    `full` while chats wait for a slot; `progress` shows what a turn is doing before it has words;
    `call_s` limits a call; `on_broken` is called when a person must mend something."""

    platform: Platform
    deliveries: DeliveryQueue
    fanout: Fanout
    media: MediaStore
    draining: asyncio.Event
    full: asyncio.Event
    clock: Clock
    progress: bool
    call_s: float
    on_broken: Callable[[ChannelBroken], None]

    async def call(self, lease: ChatLease, call: Callable[[], Awaitable[T]], *, within_s: float | None = None) -> T:
        """Make one call while the lease is safe. Raises NotDelivered in one of its forms, and
        LeaseLost when the lease is in doubt and the call was therefore not made."""
        if not lease.safe_s:
            raise LeaseLost("the lease on a chat is in doubt; nothing is sent")
        outcome = "broken"
        limit_s = self.call_s if within_s is None else min(within_s, self.call_s)
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
            self.on_broken(exc)
            raise NotAccepted(str(exc)) from exc
        except asyncio.CancelledError:
            outcome = "unclear"  # the request may have left before the cancellation
            raise
        except Exception as exc:
            log.exception("call of a platform broke", channel=self.platform.name)
            raise ChannelFault(f"{type(exc).__name__} in the channel's code") from exc
        finally:
            DELIVERY_CALLS.labels(self.platform.name, outcome).inc()
