"""The spans of model calls, and who is told of the trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.errors import ModelError
from shared.settings import ModelSettings, PresetSettings, Secret
from shared.tracing import continued, fresh, span
from shared.tracing.spans import FIRST, TURN
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.recorded import Kept, recording
from tests.helpers.scripted_model import Broken, ScriptedModel
from worker.agent.model.model import LLMResponse, ModelRequest, TokenUsage
from worker.llm.policies.traced import TracedModel, traced
from worker.llm.registry import Models

ASKED: list[dict[str, Any]] = [{"role": "user", "content": "canary"}]


def reached(server: ScriptedOpenAI, **more: Any) -> ModelSettings:
    at_server: dict[str, Any] = {
        "name": "openai/gpt-4o",
        "api_base": server.base_url,
        "api_key": Secret("sk-canary"),
        "client": "direct",
    }
    return ModelSettings(**(at_server | {"retry_waits_s": (0.01,), "prices": {"openai/gpt-4o": (1.0, 2.0)}} | more))


async def ignore_delta(delta: str) -> None:
    pass


def spans_as_text(kept: Kept) -> str:
    """All that was recorded, as text."""
    return repr([(one.name, one.attributes, one.events, one.error) for one in kept.spans])


async def test_a_call_is_a_span_of_the_conventions_for_generative_models(server: ScriptedOpenAI) -> None:
    """Who was asked for what, who answered, what it used; no text, no key."""
    server.script(Answer(text="the canary sings"))
    with recording() as kept, span(TURN):
        model = Models(reached(server)).get()
        await model.chat(ModelRequest(ASKED, max_tokens=99, temperature=0.5), ignore_delta)
        await model.close()
    chat, turn = kept.spans
    assert (chat.name, chat.type.kind, chat.parent) == ("chat gpt-4o", "client", turn.context)
    first = chat.attributes.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first, float)
    assert 0 < first < (chat.ended_ns - chat.started_ns) / 1e9
    used = chat.attributes.pop("gen_ai.usage.input_tokens")
    assert isinstance(used, int)
    cost = chat.attributes.pop("shoal.cost_usd")
    assert cost == pytest.approx((used * 1.0 + 3 * 2.0) / 1e6)
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.output_tokens": 3,
        "server.address": "127.0.0.1",
    }
    [(event, at_ns)] = chat.events
    assert event == FIRST
    assert chat.started_ns < at_ns < chat.ended_ns
    assert "canary" not in spans_as_text(kept)


async def test_texts_are_in_spans_only_where_the_settings_ask_for_them(server: ScriptedOpenAI) -> None:
    """In the form of the conventions: roles and parts; the newest messages that fit, images by their kind alone."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,secret"}}
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "old " * 5000},
        *({"role": "user", "content": "x" * 9000} for _ in range(4)),
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a canary"},
        {"role": "user", "content": [{"type": "text", "text": "and this?"}, picture]},
    ]  # fmt: skip
    server.script(Answer(text="it sings"))
    with recording(content=True) as kept:
        model = Models(reached(server)).get()
        await model.chat(ModelRequest(asked), ignore_delta)
        await model.close()
    chat = kept.one("chat gpt-4o")
    sent = json.loads(str(chat.attributes["gen_ai.input.messages"]))
    assert [one["role"] for one in sent] == ["user", "user", "user", "assistant", "tool", "user"]
    assert all(len(part.get("content", "")) <= 4096 for one in sent for part in one["parts"])
    assert sent[3]["parts"] == [{"type": "tool_call", "id": "1", "name": "look", "arguments": "{}"}]
    assert sent[4]["parts"] == [{"type": "tool_call_response", "id": "1", "response": "a canary"}]
    assert sent[5]["parts"] == [{"type": "text", "content": "and this?"}, {"type": "image_url"}]
    [answer] = json.loads(str(chat.attributes["gen_ai.output.messages"]))
    parts = [{"type": "text", "content": "it sings"}]
    assert answer == {"role": "assistant", "parts": parts, "finish_reason": "stop"}
    assert "secret" not in spans_as_text(kept)


async def test_a_call_that_is_not_streamed_has_no_first_token(server: ScriptedOpenAI) -> None:
    """What the cache held is told where the provider says it."""
    server.script(Answer(calls=[Call("look", '{"at": "canary"}')], cached_tokens=5))
    with recording() as kept:
        model = Models(reached(server)).get()
        await model.chat(ModelRequest(ASKED))
        await model.close()
    chat = kept.one("chat gpt-4o")
    assert chat.parent is None, "a call outside of any turn begins a trace"
    assert chat.events == []
    assert chat.attributes["gen_ai.request.stream"] is False
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    assert "canary" not in spans_as_text(kept)


async def test_each_request_is_a_span_and_a_fault_is_its_kind(server: ScriptedOpenAI) -> None:
    """A repeat, and the fallback behind it: three requests, two of them failed."""
    server.script(Answer(status=503, times=2, error={"message": "canary"}), Answer(text="fine"))
    with recording() as kept:
        model = Models(reached(server, fallbacks=("openai/small",))).get()
        assert (await model.chat(ModelRequest(ASKED))).content == "fine"
        await model.close()
    assert [(one.name, one.error) for one in kept.spans] == [
        ("chat gpt-4o", "overloaded"),
        ("chat gpt-4o", "overloaded"),
        ("chat small", ""),
    ]
    assert "canary" not in spans_as_text(kept)


async def test_a_stream_that_breaks_off_has_an_event_for_its_first_token() -> None:
    """And what broke it, by kind."""
    fault = ModelError("connection", "canary", retryable=True)
    with recording() as kept:
        model = TracedModel(ScriptedModel([Broken(fault, ("canary",))]), asked="m", provider="mistral")
        with pytest.raises(ModelError):
            await model.chat(ModelRequest(ASKED), ignore_delta)
    chat = kept.one("chat m")
    assert (chat.error, [name for name, _ in chat.events]) == ("connection", [FIRST])
    assert chat.attributes["gen_ai.provider.name"] == "mistral_ai"
    assert "canary" not in spans_as_text(kept)


async def test_a_reply_without_a_name_or_a_price_tells_neither() -> None:
    """Nothing is made up."""
    reply = LLMResponse(content="x", usage=TokenUsage(2, 1))
    with recording() as kept:
        await TracedModel(ScriptedModel([reply]), asked="m", provider="p").chat(ModelRequest(ASKED))
    names = kept.one("chat m").attributes.keys()
    assert not names & {"gen_ai.response.model", "shoal.cost_usd", "gen_ai.usage.cache_read.input_tokens"}


def test_where_no_traces_are_sent_a_model_is_as_it_was() -> None:
    """Not one call more."""
    model = ScriptedModel([])
    assert traced(model, asked="m", provider="p") is model
    with recording():
        wrapped = traced(model, asked="m", provider="p")
    assert isinstance(wrapped, TracedModel)
    assert wrapped.name == model.name


async def test_the_built_in_model_has_spans_too() -> None:
    """`make up` shows what a trace looks like without any key."""
    with recording() as kept:
        await Models(ModelSettings()).get().chat(ModelRequest([{"role": "user", "content": "hello"}]))
    assert kept.one("chat demo").attributes["gen_ai.provider.name"] == "demo"


@pytest.mark.parametrize("client", ["direct", "litellm"])
async def test_the_trace_header_goes_to_an_endpoint_of_ones_own_if_it_is_set(
    server: ScriptedOpenAI, client: str
) -> None:
    """`model.traceparent`: of the call's span where traces are sent, else what came with the message."""
    came = fresh(sampled=True)
    with continued(came.traceparent):
        model = Models(reached(server, client=client, traceparent=True)).get()
        await model.chat(ModelRequest(ASKED))
        with recording() as kept:
            model = Models(reached(server, client=client, traceparent=True)).get()
            await model.chat(ModelRequest(ASKED))
        await model.close()
    off, on = (request.headers.get("traceparent") for request in server.requests())
    [chat] = kept.spans
    assert (off, on) == (came.traceparent, chat.context.traceparent)


@pytest.mark.parametrize("client", ["direct", "litellm"])
async def test_without_being_asked_for_it_no_provider_learns_of_a_trace(server: ScriptedOpenAI, client: str) -> None:
    """It could tell which requests are of one conversation."""
    with recording(), span(TURN):
        model = Models(reached(server, client=client)).get()
        await model.chat(ModelRequest(ASKED))
        await model.close()
    [request] = server.requests()
    assert "traceparent" not in request.headers


async def test_an_address_of_a_preset_is_ones_own_and_a_provider_elsewhere_is_not(server: ScriptedOpenAI) -> None:
    """The setting is for addresses that stand in the settings."""
    preset = PresetSettings(name="openai/b", api_base=server.base_url, api_key=Secret("o"), client="direct")
    models = Models(reached(server, traceparent=True, presets={"own": preset}))
    with continued(fresh().traceparent):
        await models.get("own").chat(ModelRequest(ASKED))
    await models.close()
    [request] = server.requests()
    assert "traceparent" in request.headers
