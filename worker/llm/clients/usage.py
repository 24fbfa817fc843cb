"""The tokens of an answer whose provider counts none."""

from __future__ import annotations

from msgspec.structs import replace

from shared.metrics import MODEL_TOKENS_ESTIMATED
from worker.agent.limits import CHARS_PER_TOKEN, estimate_tokens
from worker.agent.model.model import LLMResponse, ModelRequest, TokenUsage


def counted(reply: LLMResponse, request: ModelRequest, model: str) -> LLMResponse:
    """Return the answer of `model` with its tokens: an estimate if the provider counts none, which
    the metric of estimated tokens also counts. Budgets hold without a provider's help."""
    reply = replace(reply, asked=model)
    if reply.usage.total_tokens:
        return reply
    words = [reply.content, reply.reasoning_content, *(call.name + call.raw for call in reply.tool_calls)]
    size = sum(len(text.encode("utf-8", "replace")) for text in words if text)
    usage = TokenUsage(estimate_tokens(request.messages, request.tools), -(-size // CHARS_PER_TOKEN))
    MODEL_TOKENS_ESTIMATED.labels(model, "input").inc(usage.prompt_tokens)
    MODEL_TOKENS_ESTIMATED.labels(model, "output").inc(usage.completion_tokens)
    return replace(reply, usage=usage)
