"""One suite for every Model: whatever the loop relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shared.settings import ModelSettings, Secret
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.scripted_model import Reply, ScriptedModel, call, calls
from worker.agent.model import LLMResponse, Model
from worker.agent.tool import Toolbox
from worker.llm.demo import DemoModel
from worker.llm.litellm_client import LiteLLMModel
from worker.llm.retry import RetryingModel
from worker.tools.registry import build_tools

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

SPECS = Toolbox(build_tools()).specs()
HELLO: list[dict[str, Any]] = [{"role": "system", "content": "be"}, {"role": "user", "content": "Hello"}]
SUM: list[dict[str, Any]] = [{"role": "user", "content": "Calculate 1 + 2"}]
ANSWERED: list[dict[str, Any]] = [
    *SUM,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "calculate", "arguments": '{"expression": "1 + 2"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "calculate", "content": "1 + 2 = 3"},
]


def scripted_reply(messages: list[dict[str, Any]]) -> Reply:
    if messages[-1]["role"] == "user" and messages[-1]["content"].startswith("Calculate"):
        return calls(call("calculate", {"expression": "1 + 2"}), text="I calculate.")
    return LLMResponse(content=f"You said: {messages[-1]['content']}")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI() as server:
        yield server


@pytest.fixture(params=["scripted", "demo", "litellm", "retrying demo", "retrying litellm"])
async def model(request: pytest.FixtureRequest, server: ScriptedOpenAI) -> AsyncIterator[Model]:
    """Each kind of model; the last part of the name says what is inside."""
    kind: str = request.param
    inner: Model
    if kind.endswith("litellm"):
        server.reset()
        server.script(
            Answer(
                match="^Calculate",
                role="user",
                text="I calculate.",
                calls=[Call("calculate", '{"expression": "1 + 2"}')],
            )
        )
        settings = ModelSettings(name="openai/scripted", api_base=server.base_url, api_key=Secret("sk-x"))
        inner = LiteLLMModel(settings)
    elif kind.endswith("demo"):
        inner = DemoModel(piece_s=0.0)
    else:
        inner = ScriptedModel(scripted_reply)
    model: Model = RetryingModel(inner) if kind.startswith("retrying") else inner
    yield model
    await model.close()


async def collect(model: Model, messages: list[dict[str, Any]]) -> tuple[LLMResponse, list[str]]:
    deltas: list[str] = []

    async def note(delta: str) -> None:
        deltas.append(delta)

    return await model.chat(messages, SPECS, on_delta=note), deltas


async def test_the_deltas_joined_are_the_content(model: Model) -> None:
    """What people saw is what is kept; nothing is sent as an empty delta."""
    reply, deltas = await collect(model, HELLO)
    assert reply.content
    assert "".join(deltas) == reply.content
    assert len(deltas) > 1
    assert all(deltas)


async def test_a_reply_is_the_same_streamed_or_not(model: Model) -> None:
    """Who listens does not change what is said."""
    streamed, _ = await collect(model, HELLO)
    whole = await model.chat(HELLO, SPECS)
    assert (whole.content, whole.tool_calls, whole.finish_reason) == (streamed.content, (), "stop")
    assert streamed.finish_reason == "stop"


async def test_a_tool_call_has_an_id_a_name_and_an_object(model: Model) -> None:
    """Ready for a Toolbox."""
    reply, _ = await collect(model, SUM)
    assert reply.finish_reason == "tool_calls"
    (request,) = reply.tool_calls
    assert request.id
    assert (request.name, request.arguments) == ("calculate", {"expression": "1 + 2"})
    assert request.raw.replace(" ", "") == '{"expression":"1+2"}'


async def test_calls_and_results_are_taken_back(model: Model) -> None:
    """The conversation after a tool has run, with null content beside the calls."""
    reply = await model.chat(ANSWERED, SPECS)
    assert reply.content
    assert reply.tool_calls == ()


async def test_the_messages_are_not_changed(model: Model) -> None:
    """The loop goes on with them."""
    before = repr(ANSWERED)
    await collect(model, ANSWERED)
    assert repr(ANSWERED) == before


class Stop(Exception):
    """Raised by a listener."""


async def test_what_the_listener_raises_goes_up_unchanged(model: Model) -> None:
    """Stops travel this way; a model neither wraps nor retries them."""

    async def stop(delta: str) -> None:
        raise Stop

    with pytest.raises(Stop):
        await model.chat(HELLO, SPECS, on_delta=stop)


async def test_a_call_can_be_cancelled(model: Model) -> None:
    """While a delta is being shown, as a drain does it."""
    shown = asyncio.Event()

    async def hang(delta: str) -> None:
        shown.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(model.chat(HELLO, SPECS, on_delta=hang))
    await shown.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_warm_and_close_may_be_called_at_any_time(model: Model) -> None:
    """And again; a call after close opens what it needs."""
    await model.close()
    await model.warm()
    await model.warm()
    await model.chat(HELLO)
    await model.close()
    assert (await model.chat(HELLO)).content
    assert model.name


async def test_calls_at_once_do_not_mix(model: Model) -> None:
    """Many turns share one model."""
    replies = await asyncio.gather(
        *(collect(model, [{"role": "user", "content": f"word{n} please"}]) for n in range(20))
    )
    for n, (reply, deltas) in enumerate(replies):
        assert f"word{n} " in (reply.content or "")
        assert "".join(deltas) == reply.content
