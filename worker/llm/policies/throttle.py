"""Keeping to what the whole fleet may ask of a provider."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from shared.errors import ModelClosed, ModelError, RedisAway, Refused
from shared.log import logger
from shared.metrics import MODEL_THROTTLED
from shared.settings import ModelSettings
from shared.store.fleet.provider_limits import CallAllowed, CallHeld, Ending, LimitRules, ProviderLimits
from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec
from worker.llm.providers import Route

PATIENCE_S: Final = 2.0
"""How long a call waits for its turn with a slot held; a longer wait goes up, and the turn waits
without one."""

_PROVIDER_FAULTS: Final[dict[str, Ending]] = {
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "timeout": "timeout",
    "connection": "connection",
}
_WHY: Final = {
    "rate_limit": "its provider asked for a pause",
    "overloaded": "its provider failed several times in a row",
    "requests_per_minute": "model.requests_per_minute is reached",
}

Sleep = Callable[[float], Awaitable[None]]

log = logger("models")


class ThrottledModel:
    """Another model, asked only when the fleet's memory of its provider allows it, which learns
    from every fault.

    Raises ModelClosed for a call that would have to wait longer than PATIENCE_S. While Redis is away all calls go
    through: a limiter must not end a turn by itself.
    """

    def __init__(
        self,
        model: Model,
        limits: ProviderLimits,
        *,
        way: str,
        rules: LimitRules,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.name = model.name
        self._model = model
        self._limits = limits
        self._way = way
        self._rules = rules
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._away = False

    async def preload(self) -> None:
        await self._model.preload()

    async def close(self) -> None:
        await self._model.close()

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        on_delta: OnDelta | None = None,
    ) -> LLMResponse:
        entered = await self._enter()
        untold = entered is not None and entered.watched

        async def first(delta: str) -> None:
            nonlocal untold
            untold = False
            await self._tell(entered, "ok")
            assert on_delta is not None
            await on_delta(delta)

        def pass_on(delta: str) -> Awaitable[None]:
            assert on_delta is not None
            return first(delta) if untold else on_delta(delta)  # the first word is proof enough

        ending: Ending = "void"
        retry_after_s: float | None = None
        try:
            reply = await self._model.chat(
                messages,
                tools,
                max_tokens=max_tokens,
                temperature=temperature,
                on_delta=pass_on if untold and on_delta is not None else on_delta,
            )
            ending = "ok"
            return reply
        except ModelError as exc:
            ending = _PROVIDER_FAULTS.get(exc.kind, "void")
            retry_after_s = exc.retry_after_s
            raise
        finally:  # also when the call is cancelled: the right to try belongs to somebody else then
            if untold or ending in _PROVIDER_FAULTS:
                await self._tell(entered, ending, retry_after_s)

    async def _enter(self) -> CallAllowed | None:
        """Wait until the call may be made; None when nobody can say. Raises ModelClosed."""
        left_s, placed, noted = PATIENCE_S, False, False
        while True:
            try:
                answer = await self._limits.enter(self._way, self._rules, patience_s=left_s, placed=placed)
            except (RedisAway, Refused):
                self._note_away()
                return None
            self._away = False
            if isinstance(answer, CallAllowed):
                return answer
            if not noted:
                MODEL_THROTTLED.labels(self.name, answer.reason).inc()
                noted = True
            if answer.wait_s > left_s:
                raise self._closed(answer)
            left_s -= answer.wait_s
            placed = placed or answer.placed
            await self._sleep(answer.wait_s)

    async def _tell(self, entered: CallAllowed | None, ending: Ending, retry_after_s: float | None = None) -> None:
        if entered is None:
            return
        try:
            news = await self._limits.report(self._way, self._rules, entered, ending, retry_after_s=retry_after_s)
        except (RedisAway, Refused):
            self._note_away()
            return
        if news == "closed":
            log.warning("provider closed", model=self.name, way=self._way, kind=ending, retry_after_s=retry_after_s)
        elif news == "opened":
            log.info("provider opened", model=self.name, way=self._way)

    def _closed(self, held: CallHeld) -> ModelClosed:
        wait_s = held.wait_s + self._rng.uniform(0.0, 1.0 + held.wait_s / 4)  # or all held turns return as one crowd
        kind = "overloaded" if held.reason == "overloaded" else "rate_limit"
        text = f"the model {self.name!r} was not asked: {_WHY[held.reason]}; it may be in {held.wait_s:.1f} s"
        return ModelClosed(kind, text, retry_after_s=wait_s)

    def _note_away(self) -> None:
        """Once, not at every call."""
        if not self._away:
            self._away = True
            log.warning("redis away", doing="asking models without the fleet's limits")


def way_of(settings: ModelSettings, route: Route) -> str:
    """The name of what shares a rate limit: a provider, and a short hash of its address and the
    key."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    digest = hashlib.blake2s(f"{route.api_base or ''}\n{key}".encode(), digest_size=6).hexdigest()
    return f"{route.provider}:{digest}"


def rules_of(settings: ModelSettings) -> LimitRules:
    """The limits that the settings want."""
    return LimitRules(
        breaker_after=settings.breaker_after,
        breaker_s=settings.breaker_s,
        hang_s=settings.total_s,
        per_minute=settings.requests_per_minute,
    )
