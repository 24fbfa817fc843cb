"""A model whose client is built when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.catalogue import ModelCatalogue


class LazyModel:
    """Another model, called `name`, that `make` builds in a thread when it is preloaded or first
    called: a client imports an HTTP library, which would delay the start of a worker. The cost of
    each reply is set from the price in `catalogue`."""

    def __init__(self, name: str, make: Callable[[], Model], catalogue: ModelCatalogue) -> None:
        self.name = name
        self._make = make
        self._catalogue = catalogue
        self._model: Model | None = None
        self._making = asyncio.Lock()

    async def preload(self) -> None:
        await self._catalogue.facts_of(self.name)
        await (await self._load()).preload()

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        model = self._model or await self._load()
        reply = await model.chat(request, on_delta)
        facts = await self._catalogue.facts_of(self.name)
        cost_usd = facts.cost_usd(reply.usage)
        if cost_usd == reply.usage.cost_usd:
            return reply
        return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd))

    async def _load(self) -> Model:
        async with self._making:  # turns that begin at the same time build one client
            if self._model is None:
                self._model = await asyncio.to_thread(self._make)
        return self._model
