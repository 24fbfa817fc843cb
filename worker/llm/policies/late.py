"""A client of models that is imported when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec


class LateModel:
    """Another model, called `name`, that `make` makes in a thread when it is warmed or first
    called.

    A client brings a library for HTTP, and a worker that is starting has better things to do than
    to import one.
    """

    def __init__(self, name: str, make: Callable[[], Model]) -> None:
        self.name = name
        self._make = make
        self._made: Model | None = None
        self._making = asyncio.Lock()

    async def preload(self) -> None:
        await (await self._model()).preload()

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        on_delta: OnDelta | None = None,
    ) -> LLMResponse:
        model = self._made or await self._model()
        return await model.chat(messages, tools, max_tokens=max_tokens, temperature=temperature, on_delta=on_delta)

    async def _model(self) -> Model:
        async with self._making:  # turns that begin together make one
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        return self._made
