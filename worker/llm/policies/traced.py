"""Spans of model calls: one for each request to a provider, including repeats."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Final
from urllib.parse import urlsplit

from shared.settings import ModelSettings
from shared.tracing import Span, current_traceparent, is_on, span
from shared.tracing.spans import CHAT, FIRST
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.policies.traced_content import set_reply_texts, set_request_texts
from worker.llm.policies.wrapper import ModelWrapper

PROVIDERS: Final = {"mistral": "mistral_ai", "moonshot": "moonshot_ai", "xai": "x_ai"}
"""Providers whose name in OpenTelemetry's conventions is another one."""


class TracedModel(ModelWrapper):
    """Another model, with a span for each call. `asked` is its name at `provider`."""

    def __init__(self, model: Model, *, asked: str, provider: str, address: str | None = None) -> None:
        super().__init__(model)
        self._asked = asked
        self._provider = PROVIDERS.get(provider, provider)
        self._host = urlsplit(address or "").hostname or ""

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        with span(CHAT, self._asked) as chat_span:
            if chat_span.on:
                chat_span.set("gen_ai.operation.name", "chat")
                chat_span.set("gen_ai.provider.name", self._provider)
                chat_span.set("gen_ai.request.model", self._asked)
                chat_span.set("gen_ai.request.max_tokens", request.max_tokens)
                chat_span.set("gen_ai.request.temperature", request.temperature)
                chat_span.set("gen_ai.request.stream", on_delta is not None)
                if self._host:
                    chat_span.set("server.address", self._host)
                if on_delta is not None:
                    on_delta = _with_first_token_event(chat_span, on_delta)
            if chat_span.texts:
                set_request_texts(chat_span, request)
            reply = await self._model.chat(request, on_delta)
            if chat_span.on:
                _set_response_attributes(chat_span, reply)
            if chat_span.texts:
                set_reply_texts(chat_span, reply)
            return reply


def traced(model: Model, *, asked: str, provider: str, address: str | None = None) -> Model:
    """Return the model with spans if this process sends traces, else the model itself."""
    return TracedModel(model, asked=asked, provider=provider, address=address) if is_on() else model


def trace_header(settings: ModelSettings) -> dict[str, str]:
    """Return the header that names the trace of a request: only for the operator's own endpoint, if
    the settings ask for it. No other provider learns which requests make one conversation."""
    asked = settings.traceparent and settings.api_base is not None
    traceparent = current_traceparent() if asked else None
    return {"traceparent": traceparent} if traceparent else {}


def _with_first_token_event(chat_span: Span, on_delta: OnDelta) -> OnDelta:
    began: float | None = time.perf_counter()

    def pass_on(delta: str) -> Awaitable[None]:
        nonlocal began
        if began is not None:
            chat_span.set("gen_ai.response.time_to_first_chunk", time.perf_counter() - began)
            chat_span.event(FIRST)
            began = None
        return on_delta(delta)

    return pass_on


def _set_response_attributes(chat_span: Span, reply: LLMResponse) -> None:
    usage = reply.usage
    if reply.model:
        chat_span.set("gen_ai.response.model", reply.model)
    chat_span.set("gen_ai.response.finish_reasons", (reply.finish_reason,))
    chat_span.set("gen_ai.usage.input_tokens", usage.prompt_tokens)
    chat_span.set("gen_ai.usage.output_tokens", usage.completion_tokens)
    if usage.cached_tokens:
        chat_span.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
    if usage.cost_usd:
        chat_span.set("shoal.cost_usd", usage.cost_usd)
