"""Asking another model when one cannot answer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from shared.errors import ModelError
from shared.log import logger
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta

log = logger("models")


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
        shown = False

        def pass_on(delta: str) -> Awaitable[None]:
            nonlocal shown
            shown = True
            assert on_delta is not None
            return on_delta(delta)  # not awaited here: one coroutine less for every delta

        faults: list[ModelError] = []
        for model in self._models:
            try:
                reply = await model.chat(request, None if on_delta is None else pass_on)
            except ModelError as exc:
                if shown or exc.kind == "context_length":
                    raise
                faults.append(exc)
            else:
                self._log_change(model.name, faults)
                return reply
        retryable = [exc for exc in faults if exc.retryable]
        raise min(retryable, key=lambda exc: exc.retry_after_s or 0.0, default=faults[0])

    def _log_change(self, name: str, faults: Sequence[ModelError]) -> None:
        """Log the model that answers when it changes, not at every call."""
        if name != self._answering:
            self._answering = name
            log.warning("model changed", model=name, first=self.name, kinds=[exc.kind for exc in faults])
