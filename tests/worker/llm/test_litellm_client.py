"""What is LiteLLM's alone; everything that it shares with the direct client is in tests/contracts."""

from __future__ import annotations

import pytest

from shared.errors import ModelError
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.agent.tool import Toolbox
from worker.llm.litellm_client import LiteLLMModel
from worker.tools.registry import build_tools

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

HELLO = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refused_body_is_a_bad_request(server: ScriptedOpenAI, streamed: bool) -> None:
    """LiteLLM repeats a 422 itself and then answers nothing at all."""

    async def note(delta: str) -> None:
        raise AssertionError(delta)

    server.script(Answer(status=422, times=0))
    model = LiteLLMModel(ModelSettings(name="openai/x", api_base=server.base_url, api_key=Secret("sk-x")))
    with pytest.raises(ModelError) as raised:
        await model.chat(HELLO, on_delta=note if streamed else None)
    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    assert server.stats()["requests"] <= 3
    await model.close()


async def test_an_unknown_provider_is_a_bad_request() -> None:
    """A name without a known prefix reaches nobody, and says what to check."""
    model = LiteLLMModel(ModelSettings(name="no-such-provider/x"))
    with pytest.raises(ModelError, match=r"check model\.name") as raised:
        await model.chat(HELLO)
    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    await model.close()


async def test_a_gateway_gets_the_whole_name_and_the_marks_for_its_cache(server: ScriptedOpenAI) -> None:
    """The route is the provider registry's here too."""
    settings = ModelSettings(
        name="openrouter/anthropic/claude-sonnet-4.5", api_base=server.base_url, api_key=Secret("sk-or-x")
    )
    model = LiteLLMModel(settings)
    await model.chat(HELLO, Toolbox(build_tools(["calculate", "roll_dice"])).specs())
    (request,) = server.requests()
    assert request.body["model"] == "anthropic/claude-sonnet-4.5"
    mark = {"type": "ephemeral"}
    system = request.body["messages"][0]["content"]
    assert system == [{"type": "text", "text": "be", "cache_control": mark}]
    assert [tool.get("cache_control") for tool in request.body["tools"]] == [None, mark]
    await model.close()
