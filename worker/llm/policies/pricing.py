"""The price of each call."""

from __future__ import annotations

from msgspec.structs import replace

from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.catalogue import ModelCatalogue


class PricedModel:
    """Another model, with the cost of each reply set from that model's price."""

    def __init__(self, model: Model, catalogue: ModelCatalogue) -> None:
        self.name = model.name
        self._model = model
        self._catalogue = catalogue

    async def preload(self) -> None:
        await self._catalogue.facts_of(self.name)
        await self._model.preload()

    async def close(self) -> None:
        await self._model.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        reply = await self._model.chat(request, on_delta)
        facts = await self._catalogue.facts_of(self.name)
        cost_usd = facts.cost_usd(reply.usage)
        if cost_usd == reply.usage.cost_usd:
            return reply
        return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd))
