"""What is LiteLLM's alone; everything that it shares with the direct client is in tests/contracts."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from shared.errors import ModelError, SettingsError
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually
from worker.agent.model.model import ModelRequest
from worker.agent.tools.toolbox import Toolbox
from worker.llm.clients.litellm_client import LiteLLMModel
from worker.tools.registry import build_tools

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

HELLO = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]


async def test_an_installation_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the slim image is: one sentence that names the model."""

    def absent(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="litellm")

    monkeypatch.setattr("worker.llm.clients.litellm_client.import_module", absent)
    with pytest.raises(SettingsError, match=r"'gemini/x' is reached by LiteLLM, .* not installed here"):
        await LiteLLMModel(ModelSettings(name="gemini/x")).preload()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refused_body_is_a_bad_request(server: ScriptedOpenAI, streamed: bool) -> None:
    """LiteLLM repeats a 422 itself and then answers nothing at all."""

    async def note(delta: str) -> None:
        raise AssertionError(delta)

    server.script(Answer(status=422, times=0))
    model = LiteLLMModel(ModelSettings(name="openai/x", api_base=server.base_url, api_key=Secret("sk-x")))
    with pytest.raises(ModelError) as raised:
        await model.chat(ModelRequest(HELLO), note if streamed else None)
    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    assert server.stats()["requests"] <= 3
    await model.close()


async def test_an_unknown_provider_is_a_bad_request() -> None:
    """A name without a known prefix reaches nobody, and says what to check."""
    model = LiteLLMModel(ModelSettings(name="no-such-provider/x"))
    with pytest.raises(ModelError, match=r"check model\.name") as raised:
        await model.chat(ModelRequest(HELLO))
    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    await model.close()


async def test_a_gateway_gets_the_whole_name_and_the_marks_for_its_cache(server: ScriptedOpenAI) -> None:
    """The route is the provider registry's here too."""
    settings = ModelSettings(
        name="openrouter/anthropic/claude-sonnet-4.5", api_base=server.base_url, api_key=Secret("sk-or-x")
    )
    model = LiteLLMModel(settings)
    await model.chat(ModelRequest(HELLO, Toolbox(build_tools(["calculate", "roll_dice"])).specs()))
    (request,) = server.requests()
    assert request.body["model"] == "anthropic/claude-sonnet-4.5"
    mark = {"type": "ephemeral"}
    system = request.body["messages"][0]["content"]
    assert system == [{"type": "text", "text": "be", "cache_control": mark}]
    assert [tool.get("cache_control") for tool in request.body["tools"]] == [None, mark]
    await model.close()


SIGNED: list[dict[str, Any]] = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1__thought__c2ln", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1__thought__c2ln", "name": "look", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "name": "look", "content": "sun"},
]


@pytest.mark.parametrize(("name", "id_"), [("openai/gpt-4o", "c1"), ("openai/gemini-3-pro", "c1__thought__c2ln")])
async def test_geminis_signatures_in_the_ids_of_calls_go_to_gemini_alone(
    server: ScriptedOpenAI, name: str, id_: str
) -> None:
    """A chat may change its model; LiteLLM cuts them off where it makes a record of a call, which is ours here."""
    model = LiteLLMModel(ModelSettings(name=name, api_base=server.base_url, api_key=Secret("sk-x")))
    before = repr(SIGNED)
    await model.chat(ModelRequest(SIGNED))
    (request,) = server.requests()
    messages = request.body["messages"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == [id_, "c2"]
    assert [message["tool_call_id"] for message in messages[2:]] == [id_, "c2"]
    assert repr(SIGNED) == before
    await model.close()


async def test_openai_gets_the_organisation_and_the_project_of_the_environment(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK tells them by itself, and LiteLLM's own handler does not. Nobody else gets them."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    key = Secret("sk-x")
    headers = {"X-Team": Secret("a")}
    at_openai = LiteLLMModel(ModelSettings(name="openai/x", api_key=key, client="litellm", headers=headers))
    elsewhere = LiteLLMModel(ModelSettings(name="openai/x", api_base=server.base_url, api_key=key))
    await at_openai.chat(ModelRequest(HELLO))
    await elsewhere.chat(ModelRequest(HELLO))
    first, second = (request.headers for request in server.requests())
    assert (first["openai-organization"], first["openai-project"], first["x-team"]) == ("org-1", "proj-1", "a")
    assert not {"openai-organization", "openai-project"} & set(second)
    await at_openai.close()


@pytest.mark.parametrize("provider", ["openai", "cerebras", "veniceai"])  # prepared at once, in a thread; by the SDK
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [200, 400])
async def test_litellm_tells_nobody_of_a_call(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, streamed: bool, status: int, provider: str
) -> None:
    """Neither a price nor a record nor a callback: nobody here reads them, and they cost nearly half of a call."""
    monkeypatch.setenv("EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER", "True")
    model = LiteLLMModel(ModelSettings(name=f"{provider}/ours", api_base=server.base_url, api_key=Secret("sk-x")))
    await model.preload()
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

    callbacks: list[str] = []

    class CallbackLogger(CustomLogger):
        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            callbacks.append(kwargs["model"])

        async_log_failure_event = async_log_success_event

    async def note(delta: str) -> None:
        pass

    async def ours() -> object:
        return await model.chat(ModelRequest(HELLO), note if streamed else None)

    async def theirs() -> object:
        return await litellm.acompletion(
            model="openai/theirs", messages=HELLO, api_base=server.base_url, api_key="sk-x", num_retries=0
        )

    for lists in ("success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback"):
        monkeypatch.setattr(litellm, lists, [])
    monkeypatch.setattr(litellm, "callbacks", [CallbackLogger()])
    server.script(Answer(text="one two", status=status, times=0))
    for asking in (theirs, ours, theirs):
        with pytest.raises(Exception, match="400") if status == 400 else contextlib.nullcontext():
            await asking()
    await eventually(lambda: len(callbacks) >= 2)  # in the order of the calls
    assert set(callbacks) == {"theirs"}
    await model.close()
