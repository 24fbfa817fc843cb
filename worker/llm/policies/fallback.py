"""Asking another model when one cannot answer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from shared.errors import ModelError
from shared.log import logger
from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec

log = logger("models")


class FallbackModel:
    """Several models in the order in which they are asked; each has its own retries before the next
    one's turn.

    A prompt that is too long is the caller's to shorten, and goes up. So does a fault after a
    delta: the text was shown. When none can answer, the fault goes up after which one of them can
    be asked again soonest, else the first.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.name = models[0].name
        self._models = tuple(models)
        self._answering = self.name

    async def preload(self) -> None:
        """Only the first: the others may never be asked."""
        await self._models[0].preload()

    async def close(self) -> None:
        for model in self._models:
            await model.close()

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        on_delta: OnDelta | None = None,
    ) -> LLMResponse:
        shown = False

        def pass_on(delta: str) -> Awaitable[None]:
            nonlocal shown
            shown = True
            assert on_delta is not None
            return on_delta(delta)  # handed on, not waited for: each coroutine more would cost every delta

        faults: list[ModelError] = []
        for model in self._models:
            try:
                reply = await model.chat(
                    messages,
                    tools,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    on_delta=None if on_delta is None else pass_on,
                )
            except ModelError as exc:
                if shown or exc.kind == "context_length":
                    raise
                faults.append(exc)
            else:
                self._note(model.name, faults)
                return reply
        passing = [exc for exc in faults if exc.retryable]
        raise min(passing, key=lambda exc: exc.retry_after_s or 0.0, default=faults[0])

    def _note(self, name: str, faults: Sequence[ModelError]) -> None:
        """Say once who answers now, not at every call."""
        if name != self._answering:
            self._answering = name
            log.warning("model changed", model=name, first=self.name, kinds=[exc.kind for exc in faults])
