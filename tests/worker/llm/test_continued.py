"""How each provider is asked to go on with a reply that was cut off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.settings import ModelSettings, Secret
from tests.reports.provider import Body, provider, refusal, text_stream
from worker.agent.model.ask import GO_ON, GOES_ON
from worker.agent.model.model import ModelRequest
from worker.llm.clients.direct_client import DirectModel
from worker.llm.provider_spec import Prefix
from worker.llm.routes import Route, choose

BEGUN = "Once upon a time "
ASKED = ModelRequest(
    [
        {"role": "user", "content": "a story"},
        {"role": "assistant", "content": BEGUN},
        {"role": "user", "content": GO_ON, GOES_ON: True},
    ]
)
CUT = {"role": "assistant", "content": BEGUN.rstrip()}


def route_of(name: str, **settings: Any) -> Route:
    return choose(ModelSettings(name=name, api_key=Secret("k"), **settings))


@pytest.mark.parametrize(
    ("name", "fields", "body"),
    [
        ("mistral/m", {"prefix": True}, {}),
        ("deepseek/m", {"prefix": True}, {}),
        ("moonshot/m", {"partial": True}, {}),
        ("hosted_vllm/m", {}, {"continue_final_message": True, "add_generation_prompt": False}),
        ("ollama/m", {}, {}),
        ("anthropic/m", {}, {}),
    ],
)
def test_a_provider_that_goes_on_by_itself_gets_the_reply_alone(name: str, fields: Body, body: Body) -> None:
    route = route_of(name)
    assert route.prefix is not None
    assert (route.prefix.message, route.prefix.body) == (fields, body)


@pytest.mark.parametrize("name", ["openai/m", "openrouter/openai/m", "groq/m", "xai/m", "custom/m"])
def test_others_are_asked_in_words(name: str) -> None:
    base = "https://llm.example.org/v1" if name.startswith("custom") else None
    assert route_of(name, api_base=base).prefix is None


def test_deepseek_serves_it_at_an_address_of_its_own() -> None:
    """At another address than DeepSeek's it may not be served at all."""
    prefix = route_of("deepseek/m").prefix
    assert prefix is not None
    assert prefix.api_base == "https://api.deepseek.com/beta"
    assert route_of("deepseek/m", api_base="https://llm.example.org/v1").prefix is None


def model_at(base: str, prefix: Prefix | None) -> DirectModel:
    settings = ModelSettings(name="openai/x", api_base=base, api_key=Secret("sk-x"), retry_waits_s=())
    return DirectModel(settings, route=msgspec.structs.replace(choose(settings), prefix=prefix))


async def ask(model: DirectModel) -> str | None:
    async def ignore(_delta: str) -> None:
        pass

    try:
        return (await model.chat(ASKED, ignore)).content
    finally:
        await model.close()


@pytest.mark.parametrize("prefix", [Prefix(message={"prefix": True}), Prefix(body={"continue_final_message": True})])
async def test_the_reply_is_the_last_message(prefix: Prefix) -> None:
    """Without white space at its end, which some refuse."""
    async with provider(lambda body: (200, text_stream("there was"))) as served:
        assert await ask(model_at(f"http://127.0.0.1:{served.port}/v1", prefix)) == "there was"
    [body] = served.requests
    assert body["messages"][-1] == CUT | prefix.message
    assert {name: body.get(name) for name in prefix.body} == prefix.body


async def test_in_words_the_mark_stays_here() -> None:
    async with provider(lambda body: (200, text_stream("there was"))) as served:
        await ask(model_at(f"http://127.0.0.1:{served.port}/v1", None))
    assert served.requests[0]["messages"][1:] == [
        {"role": "assistant", "content": BEGUN},
        {"role": "user", "content": GO_ON},
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model does not support assistant message prefill. The conversation must end with a user message."),
        (422, "messages.1.prefix: Extra inputs are not permitted"),
        (404, "not found"),
    ],
)
async def test_a_model_that_refuses_is_asked_in_words_from_then_on(status: int, words: str) -> None:
    """Once, and remembered for the life of the process."""

    def rule(body: Body) -> tuple[int, Any]:
        prefixed = body["messages"][-1]["role"] == "assistant"
        return (status, refusal(words)) if prefixed else (200, text_stream("there was"))

    async with provider(rule) as served:
        model = model_at(f"http://127.0.0.1:{served.port}/v1", Prefix(message={"prefix": True}))
        assert [await ask(model), await ask(model)] == ["there was"] * 2
    assert [body["messages"][-1]["role"] for body in served.requests] == ["assistant", "user", "user"]
