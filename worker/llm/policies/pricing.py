"""What each call cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec
from worker.llm.catalogue import Catalogue


class PricedModel:
    """Another model, whose replies say what they cost by the price of that model."""

    def __init__(self, model: Model, catalogue: Catalogue) -> None:
        self.name = model.name
        self._model = model
        self._catalogue = catalogue

    async def preload(self) -> None:
        await self._catalogue.of(self.name)
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
        reply = await self._model.chat(
            messages, tools, max_tokens=max_tokens, temperature=temperature, on_delta=on_delta
        )
        facts = await self._catalogue.of(self.name)
        cost_usd = facts.cost_usd(reply.usage)
        if cost_usd == reply.usage.cost_usd:
            return reply
        return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd))
