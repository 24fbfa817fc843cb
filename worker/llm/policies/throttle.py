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
from shared.tasks import completed
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.policies.wrapper import ModelWrapper
from worker.llm.routes import Route

_WHY: Final = {
    "rate_limit": "its provider asked for a pause",
    "overloaded": "its provider failed for several chats in a row",
    "requests_per_minute": "model.requests_per_minute is reached",
}
# Held turns that come back a second, lest thousands do nothing but ask again
_BACK_PER_S: Final = 50.0
_RNG: Final = random.Random()


def provider_route(settings: ModelSettings, route: Route) -> str:
    """Return the key of a rate limit: a provider, and a short hash of its address and API key."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    digest = hashlib.blake2s(f"{route.api_base or ''}\n{key}".encode(), digest_size=6).hexdigest()
    return f"{route.provider}:{digest}"


def closed_error(name: str, held: CallHeld) -> ModelClosed:
    """Return the error for a call that the fleet holds back longer than its turn can wait."""
    # Jitter, so that all turns that were held back do not return at the same moment.
    wait_s = held.next_s + _RNG.uniform(0.0, 1.0 + held.next_s / 4 + held.crowd / _BACK_PER_S)
    kind = "overloaded" if held.reason == "overloaded" else "rate_limit"
    return ModelClosed(
        kind,
        f"the model {name!r} was not asked: {_WHY[held.reason]}; it may be in {held.next_s:.1f} s",
        retry_after_s=wait_s,
    )


def limit_rules(settings: ModelSettings) -> LimitRules:
    """Return the limits of the settings."""
    return LimitRules(
        breaker_after=settings.breaker_after,
        breaker_s=settings.breaker_s,
        hang_s=settings.total_s,
        per_minute=settings.requests_per_minute,
    )


LONGEST_WAIT_S: Final = 2.0  # a waiting turn holds a slot; for a longer wait it is released
_ENDINGS: Final[dict[str, Ending]] = {
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "timeout": "timeout",
    "connection": "connection",
    "auth": "refused",
    "billing": "refused",
}
"""What a call is reported as, by the kind of its fault. Other faults say nothing of the
provider."""


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
        session = request.session
        entered = await self._enter(session)
        # A call that is watched follows faults of others, or is the fleet's one trial of a closed
        # provider: its outcome is reported as early as possible, and in any case.
        unreported = entered is not None and entered.watched

        async def report_first(delta: str) -> None:  # the first token is proof enough
            nonlocal unreported
            unreported = False
            await self._report(session, entered, "ok")
            assert on_delta is not None
            await on_delta(delta)

        def pass_on(delta: str) -> Awaitable[None]:
            assert on_delta is not None
            return report_first(delta) if unreported else on_delta(delta)

        ending: Ending = "void"
        fault: ModelError | None = None
        try:
            watched = unreported and on_delta is not None
            reply = await self._model.chat(request, pass_on if watched else on_delta)
            ending = "ok"
            return reply
        except ModelError as exc:
            fault = exc
            ending = _ENDINGS.get(exc.kind, "void")
            # What cannot be read is an answer all the same: the provider is there.
            exc.alone = exc.retryable and ending == "void"
            raise
        finally:
            # Also of a cancelled call: until the trial is reported, no other worker may make one.
            if unreported or ending not in ("ok", "void"):
                await completed(asyncio.ensure_future(self._report(session, entered, ending, fault)))

    async def _enter(self, session: str) -> CallAllowed | None:
        """Wait until the call may be made; None while Redis is unreachable. Raises ModelClosed."""
        left_s = LONGEST_WAIT_S
        placed = False
        counted = False
        way = self._route_key
        rules = self._rules
        while True:
            try:
                answer = await self._limits.enter(way, rules, session=session, patience_s=left_s, placed=placed)
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

    async def _report(
        self, session: str, entered: CallAllowed | None, ending: Ending, fault: ModelError | None = None
    ) -> None:
        """Report how a call ended; `fault` learns whether its session met it alone."""
        if entered is None:
            return
        way = self._route_key
        rules = self._rules
        wait_s = fault.retry_after_s if fault else None
        try:
            news = await self._limits.report(way, rules, entered, ending, session=session, retry_after_s=wait_s)
        except (RedisAway, Refused):
            self._log_unavailable()
            return
        if news == "closed":
            more = {"retry_after_s": wait_s, "provider_says": fault.reason if fault else ""}
            log.warning("provider closed", model=self.name, way=way, kind=ending, **more)
        elif news == "opened":
            log.info("provider opened", model=self.name, way=way)
        elif news == "alone" and fault is not None:
            fault.alone = True

    def _log_unavailable(self) -> None:
        if not self._redis_unavailable:  # once, not at every call
            self._redis_unavailable = True
            log.warning("redis away", doing="asking models without the fleet's limits")
