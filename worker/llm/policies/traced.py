"""The spans of model calls: one for each request that is made of a provider, its repeats too."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from shared.settings import ModelSettings
from shared.tracing import Span, current_traceparent, is_on, span
from shared.tracing.spans import CHAT, FIRST
from worker.agent.model.model import LLMResponse, Model, OnDelta, ToolSpec

PROVIDERS: Final = {"mistral": "mistral_ai", "moonshot": "moonshot_ai", "xai": "x_ai"}
"""Providers that have another name in OpenTelemetry's conventions."""


class TracedModel:
    """Another model, whose calls are spans. `asked` is the name by which `provider` knows it."""

    def __init__(self, model: Model, *, asked: str, provider: str, address: str | None = None) -> None:
        self.name = model.name
        self._model = model
        self._asked = asked
        self._provider = PROVIDERS.get(provider, provider)
        self._host = urlsplit(address or "").hostname or ""

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
        with span(CHAT, self._asked) as now:
            if now.on:
                self._asks(now, max_tokens, temperature, streams=on_delta is not None)
                on_delta = None if on_delta is None else _first_told(now, on_delta)
            reply = await self._model.chat(
                messages, tools, max_tokens=max_tokens, temperature=temperature, on_delta=on_delta
            )
            if now.on:
                _answers(now, reply)
            return reply

    def _asks(self, now: Span, max_tokens: int, temperature: float, *, streams: bool) -> None:
        now.set("gen_ai.operation.name", "chat")
        now.set("gen_ai.provider.name", self._provider)
        now.set("gen_ai.request.model", self._asked)
        now.set("gen_ai.request.max_tokens", max_tokens)
        now.set("gen_ai.request.temperature", temperature)
        now.set("gen_ai.request.stream", streams)
        if self._host:
            now.set("server.address", self._host)


def traced(model: Model, *, asked: str, provider: str, address: str | None = None) -> Model:
    """The model with spans where this process sends traces, else the same."""
    return TracedModel(model, asked=asked, provider=provider, address=address) if is_on() else model


def trace_header(settings: ModelSettings) -> dict[str, str]:
    """The header that says to which trace a request belongs: for an endpoint of the operator's own,
    who has asked for it. No provider elsewhere learns which requests are of one conversation."""
    if not settings.traceparent or settings.api_base is None:
        return {}
    traceparent = current_traceparent()
    return {"traceparent": traceparent} if traceparent else {}


def _first_told(now: Span, on_delta: OnDelta) -> OnDelta:
    began: float | None = time.perf_counter()

    def pass_on(delta: str) -> Awaitable[None]:
        nonlocal began
        if began is not None:
            now.set("gen_ai.response.time_to_first_chunk", time.perf_counter() - began)
            now.event(FIRST)
            began = None
        return on_delta(delta)

    return pass_on


def _answers(now: Span, reply: LLMResponse) -> None:
    used = reply.usage
    if reply.model:
        now.set("gen_ai.response.model", reply.model)
    now.set("gen_ai.response.finish_reasons", (reply.finish_reason,))
    now.set("gen_ai.usage.input_tokens", used.prompt_tokens)
    now.set("gen_ai.usage.output_tokens", used.completion_tokens)
    if used.cached_tokens:
        now.set("gen_ai.usage.cache_read.input_tokens", used.cached_tokens)
    if used.cost_usd:
        now.set("shoal.cost_usd", used.cost_usd)
