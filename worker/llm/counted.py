"""One call of a model outside of a turn, in the metrics."""

from __future__ import annotations

import time

from shared.errors import ModelError
from shared.metrics import MODEL_COST_USD, MODEL_REQUESTS, MODEL_SECONDS, MODEL_TOKENS
from worker.agent.model.model import LLMResponse, Model, ModelRequest


async def ask_counted(model: Model, request: ModelRequest) -> LLMResponse:
    """Ask a model, and count the call, its time, tokens and cost. Raises ModelError."""
    name = model.name
    started = time.monotonic()
    try:
        response = await model.chat(request)
    except ModelError as exc:
        MODEL_REQUESTS.labels(name, exc.kind).inc()
        raise
    MODEL_REQUESTS.labels(name, "ok").inc()
    MODEL_SECONDS.labels(name).observe(time.monotonic() - started)
    MODEL_TOKENS.labels(name, "input").inc(response.usage.prompt_tokens)
    MODEL_TOKENS.labels(name, "output").inc(response.usage.completion_tokens)
    MODEL_COST_USD.labels(name).inc(response.usage.cost_usd)
    return response
