"""Asking again when a model is busy or away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import ModelClosed, ModelError
from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec

WAITS_S: Final = (1.0, 2.0, 4.0)
DEADLINE_S: Final = 300.0
LONGEST_WAIT_S: Final = 10.0
"""A turn holds a slot while it waits here; for longer than this it is better released."""

Sleep = Callable[[float], Awaitable[None]]


class RetryingModel:
    """Another model, asked again after 1, 2 and 4 s; what the provider says in Retry-After wins.

    No try begins later than `deadline_s` after the first, nor after a wait of more than
    LONGEST_WAIT_S: then the fault goes up, and so does ModelClosed, at once. A fault after a delta
    is not retried here: the text was shown, and only the caller can take it back before it asks
    again. Raises the last ModelError.
    """

    def __init__(
        self,
        model: Model,
        *,
        waits_s: Sequence[float] = WAITS_S,
        deadline_s: float = DEADLINE_S,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = model.name
        self._model = model
        self._waits_s = tuple(waits_s)
        self._deadline_s = deadline_s
        self._clock = clock
        self._sleep = sleep

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
        deadline = self._clock.monotonic() + self._deadline_s
        shown = False

        def pass_on(delta: str) -> Awaitable[None]:
            nonlocal shown
            shown = True
            assert on_delta is not None
            return on_delta(delta)  # handed on, not waited for: each coroutine more would cost every delta

        waits_s = iter(self._waits_s)
        while True:
            try:
                return await self._model.chat(
                    messages,
                    tools,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    on_delta=None if on_delta is None else pass_on,
                )
            except ModelClosed:
                raise
            except ModelError as exc:
                wait_s = next(waits_s, None)
                if wait_s is None or shown or not exc.retryable:
                    raise
                wait_s = wait_s if exc.retry_after_s is None else exc.retry_after_s
                if wait_s > LONGEST_WAIT_S or self._clock.monotonic() + wait_s > deadline:
                    raise
            await self._sleep(wait_s)
