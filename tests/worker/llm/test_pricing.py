"""What each call cost."""

from __future__ import annotations

from typing import Any

import pytest

from shared.settings import ModelSettings, Secret
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.agent.model.model import LLMResponse, ModelRequest, TokenUsage
from worker.llm.clients.answer.assembler import token_usage
from worker.llm.clients.answer.plain import read_usage
from worker.llm.clients.litellm_client import LiteLLMModel
from worker.llm.registry import Models

ASK = [{"role": "user", "content": "hi"}]


def settings(server: ScriptedOpenAI, **more: Any) -> ModelSettings:
    prices = {"openai/dear": (1_000_000.0, 0.0), "openai/cheap": (2_000_000.0, 10_000_000.0)}
    chosen: dict[str, Any] = {
        "name": "openai/dear",
        "api_base": server.base_url,
        "api_key": Secret("sk-x"),
        "prices": prices,
    }
    return ModelSettings(**(chosen | {"client": "direct", "retry_waits_s": (0.01,)} | more))


async def asked(settings: ModelSettings) -> LLMResponse:
    model = Models(settings).get()
    try:
        return await model.chat(ModelRequest(ASK))
    finally:
        await model.close()


async def test_a_reply_says_what_it_cost(server: ScriptedOpenAI) -> None:
    """By the price of its model; nothing where no price is known."""
    usage = (await asked(settings(server))).usage
    assert usage.cost_usd == usage.prompt_tokens > 0
    assert (await asked(settings(server, prices={}))).usage.cost_usd == 0.0


async def test_a_fallback_is_paid_at_its_own_price(server: ScriptedOpenAI) -> None:
    """Whoever answered."""
    server.script(Answer(status=401), Answer(text="one two three"))
    usage = (await asked(settings(server, fallbacks=("openai/cheap",)))).usage
    assert usage.cost_usd == 2 * usage.prompt_tokens + 10 * 3


@pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning")
@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")
async def test_what_anthropics_cache_held_is_counted() -> None:
    """Its own words for it, as LiteLLM hands them on: part of the prompt, and named as such."""
    await LiteLLMModel(ModelSettings(name="anthropic/x")).preload()  # so that it is loaded without looking things up
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig
    from litellm.types.utils import ModelResponse

    usage_fields = {
        "input_tokens": 10,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 90,
        "output_tokens": 5,
    }
    answer: Any = ModelResponse(
        usage=AnthropicConfig().calculate_usage(usage_object=usage_fields, reasoning_content=None)
    )
    usage = token_usage(read_usage(answer.model_dump()))
    assert usage == TokenUsage(prompt_tokens=1000, completion_tokens=5, cached_tokens=900)
