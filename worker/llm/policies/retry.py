"""Asking again: the same model while it is busy or unavailable, then another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import ModelClosed, ModelError
from shared.log import logger
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.policies.wrapper import ModelWrapper

LONGEST_WAIT_S: Final = 10.0  # a waiting turn holds a slot; for a longer wait it is released

log = logger("models")


class _Deltas:
    """Passes deltas on, and knows whether there was one: then text was `shown`."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.shown = False

    def __call__(self, delta: str) -> Awaitable[None]:
        self.shown = True
        return self._on_delta(delta)  # not awaited here: one coroutine less for every delta


class RetryingModel(ModelWrapper):
    """Another model, asked again after 1, 2 and 4 s, or after the provider's Retry-After. No try
    begins later than `deadline_s` after the first, nor after a wait of more than LONGEST_WAIT_S:
    then the fault is raised. ModelClosed is raised at once. A fault after a delta is not retried
    here: text was shown, and only the caller can take it back before it asks again."""

    def __init__(
        self,
        model: Model,
        *,
        waits_s: Sequence[float] = (1.0, 2.0, 4.0),
        deadline_s: float = 300.0,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(model)
        self._waits_s = tuple(waits_s)
        self._deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        deadline = self._clock.monotonic() + self._deadline_s
        deltas = None if on_delta is None else _Deltas(on_delta)
        waits_s = iter(self._waits_s)
        while True:
            try:
                return await self._model.chat(request, deltas)
            except ModelClosed:
                raise  # the fleet's limiter has waited already; the turn should give up its slot
            except ModelError as exc:
                wait_s = next(waits_s, None)
                if wait_s is None or (deltas and deltas.shown) or not exc.retryable:
                    raise
                wait_s = wait_s if exc.retry_after_s is None else exc.retry_after_s
                if wait_s > LONGEST_WAIT_S or self._clock.monotonic() + wait_s > deadline:
                    raise
            await self._sleep(wait_s)


class FallbackModel:
    """Several models, tried in order when the earlier ones are unavailable; each makes its own
    retries first. A prompt that is too long is for the caller to shorten, and raises. So does a
    fault after a delta, because text was shown. If no model can answer, the fault whose model can
    be asked again soonest is raised, else the first one."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.name = models[0].name
        self._models = tuple(models)
        self._answering = self.name

    async def preload(self) -> None:
        """Preload the first model only: the others may never be asked."""
        await self._models[0].preload()

    async def close(self) -> None:
        for model in self._models:
            await model.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        deltas = None if on_delta is None else _Deltas(on_delta)
        faults: list[ModelError] = []
        for model in self._models:
            try:
                reply = await model.chat(request, deltas)
            except ModelError as exc:
                if (deltas and deltas.shown) or exc.kind == "context_length":
                    raise
                faults.append(exc)
                continue
            if model.name != self._answering:  # only when it changes, not at every call
                self._answering = model.name
                kinds = [exc.kind for exc in faults]
                log.warning("model changed", model=model.name, first=self.name, kinds=kinds)
            return reply
        retryable = [exc for exc in faults if exc.retryable]
        raise min(retryable, key=lambda exc: exc.retry_after_s or 0.0, default=faults[0])
