"""The limits that the whole fleet keeps with a provider."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import ModelClosed, ModelError, RedisAway, Refused
from shared.log import logger
from shared.metrics import MODEL_THROTTLED
from shared.settings import ModelSettings
from shared.store.fleet.provider_limits import CallAllowed, CallHeld, Ending, LimitRules, ProviderLimits
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.policies.wrapper import ModelWrapper
from worker.llm.routes import Route

_WHY: Final = {
    "rate_limit": "its provider asked for a pause",
    "overloaded": "its provider failed several times in a row",
    "requests_per_minute": "model.requests_per_minute is reached",
}
_RNG: Final = random.Random()


def provider_route(settings: ModelSettings, route: Route) -> str:
    """Return the key of a rate limit: a provider, and a short hash of its address and API key."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    digest = hashlib.blake2s(f"{route.api_base or ''}\n{key}".encode(), digest_size=6).hexdigest()
    return f"{route.provider}:{digest}"


def closed_error(name: str, held: CallHeld) -> ModelClosed:
    """Return the error for a call that the fleet holds back longer than its turn can wait."""
    # Jitter, so that all turns that were held back do not return at the same moment.
    wait_s = held.wait_s + _RNG.uniform(0.0, 1.0 + held.wait_s / 4)
    kind = "overloaded" if held.reason == "overloaded" else "rate_limit"
    text = f"the model {name!r} was not asked: {_WHY[held.reason]}"
    return ModelClosed(kind, f"{text}; it may be in {held.wait_s:.1f} s", retry_after_s=wait_s)


def limit_rules(settings: ModelSettings) -> LimitRules:
    """Return the limits of the settings."""
    return LimitRules(
        breaker_after=settings.breaker_after,
        breaker_s=settings.breaker_s,
        hang_s=settings.total_s,
        per_minute=settings.requests_per_minute,
    )


LONGEST_WAIT_S: Final = 2.0  # a waiting turn holds a slot; for a longer wait it is released
_PROVIDER_FAULTS: Final[tuple[Ending, ...]] = ("rate_limit", "overloaded", "timeout", "connection")


log = logger("models")


class ThrottledModel(ModelWrapper):
    """Another model, asked only when the fleet's record of its provider allows it; faults are added
    to that record. Raises ModelClosed for a call that would have to wait longer than
    LONGEST_WAIT_S. While Redis is unreachable all calls go through, lest a limiter end a turn."""

    def __init__(
        self,
        model: Model,
        limits: ProviderLimits,
        *,
        route_key: str,
        rules: LimitRules,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(model)
        self._limits = limits
        self._route_key = route_key
        self._rules = rules
        self._sleep = sleep
        self._redis_unavailable = False

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        entered = await self._enter()
        # A call that is watched is the fleet's one trial of a closed provider: all workers wait for
        # its outcome, so it is reported as early as possible, and in any case.
        unreported = entered is not None and entered.watched

        async def report_first(delta: str) -> None:  # the first token is proof enough
            nonlocal unreported
            unreported = False
            await self._report(entered, "ok")
            assert on_delta is not None
            await on_delta(delta)

        def pass_on(delta: str) -> Awaitable[None]:
            assert on_delta is not None
            return report_first(delta) if unreported else on_delta(delta)

        ending: Ending = "void"
        retry_after_s: float | None = None
        try:
            watched = unreported and on_delta is not None
            reply = await self._model.chat(request, pass_on if watched else on_delta)
            ending = "ok"
            return reply
        except ModelError as exc:
            ending = next((kind for kind in _PROVIDER_FAULTS if kind == exc.kind), "void")
            retry_after_s = exc.retry_after_s
            raise
        finally:
            # Also of a cancelled call: until the trial is reported, no other worker may make one.
            if unreported or ending in _PROVIDER_FAULTS:
                await self._report(entered, ending, retry_after_s)

    async def _enter(self) -> CallAllowed | None:
        """Wait until the call may be made; None while Redis is unreachable. Raises ModelClosed."""
        left_s, placed, counted = LONGEST_WAIT_S, False, False
        while True:
            try:
                answer = await self._limits.enter(self._route_key, self._rules, patience_s=left_s, placed=placed)
            except (RedisAway, Refused):
                self._log_unavailable()
                return None
            self._redis_unavailable = False
            if isinstance(answer, CallAllowed):
                return answer
            if not counted:
                MODEL_THROTTLED.labels(self.name, answer.reason).inc()
                counted = True
            if answer.wait_s > left_s:
                raise closed_error(self.name, answer)
            left_s -= answer.wait_s
            placed = placed or answer.placed
            await self._sleep(answer.wait_s)

    async def _report(self, entered: CallAllowed | None, ending: Ending, wait_s: float | None = None) -> None:
        if entered is None:
            return
        way, rules = self._route_key, self._rules
        try:
            change = await self._limits.report(way, rules, entered, ending, retry_after_s=wait_s)
        except (RedisAway, Refused):
            self._log_unavailable()
            return
        if change == "closed":
            name = self.name
            log.warning("provider closed", model=name, way=way, kind=ending, retry_after_s=wait_s)
        elif change == "opened":
            log.info("provider opened", model=self.name, way=way)

    def _log_unavailable(self) -> None:
        if not self._redis_unavailable:  # once, not at every call
            self._redis_unavailable = True
            log.warning("redis away", doing="asking models without the fleet's limits")
