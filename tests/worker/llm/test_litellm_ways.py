"""The two ways by which LiteLLM asks who speaks OpenAI's protocol: its own HTTP handler, and the openai SDK."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest

from shared.errors import ModelError
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_bytes import ByteServer, byte_server
from tests.worker.llm.test_streams import stream_of
from worker.agent.model.model import ModelRequest, ToolSpec
from worker.llm.clients.litellm_client import SDK_ONLY, LiteLLMModel

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

FLAG: Final = "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
TOOLS: Final = (ToolSpec("look", "Looks.", SCHEMA),)
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
MESSAGES: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "be"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "rain"},
    {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
]

CALLED = """
import asyncio, sys
from shared.settings import ModelSettings, Secret
from worker.agent.model.model import ModelRequest
from worker.llm.clients.litellm_client import LiteLLMModel

async def note(delta):
    pass

async def main():
    model = LiteLLMModel(ModelSettings(name=sys.argv[1], api_base=sys.argv[2], api_key=Secret("sk-x")))
    await model.preload()
    before = set(sys.modules)
    await model.chat(ModelRequest([{"role": "user", "content": "hi"}]), note)
    print(*(set(sys.modules) - before))
    print("openai.resources" in sys.modules)
    await model.close()

asyncio.run(main())
"""


@pytest.fixture
async def server() -> AsyncIterator[ByteServer]:
    async with byte_server() as server:
        server.answer(stream_of("openai"))
        yield server


async def requested(server: ByteServer, name: str) -> tuple[str, dict[str, str], Any]:
    """What a model asks: the first line, the headers that say who asks, and the body."""
    model = LiteLLMModel(
        ModelSettings(name=name, api_base=server.base_url, api_key=Secret("sk-x"), headers={"X-Team": Secret("a")})
    )

    async def note(delta: str) -> None:
        pass

    await model.chat(ModelRequest(MESSAGES, TOOLS), note)
    await model.close()
    head, body = server.requests.pop()
    assert server.requests == []
    line, *fields = head.strip().splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    sent_headers = {name: headers[name] for name in ("authorization", "x-team", "content-type")}
    return line, sent_headers, msgspec.json.decode(body)


def asked_through_the_sdk() -> list[str]:
    """The providers that LiteLLM asks through the SDK unless its own handler is switched on."""
    from litellm.constants import openai_compatible_providers
    from litellm.llms.openai_like.json_loader import JSONProviderRegistry

    return sorted({*openai_compatible_providers, *JSONProviderRegistry.list_providers()})


@pytest.mark.slow
async def test_every_provider_gets_the_same_request_on_either_way(
    server: ByteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it is one of those for which the SDK stays: that list is whole, for the version of LiteLLM that is locked."""
    monkeypatch.setenv(FLAG, "True")
    await LiteLLMModel(ModelSettings(name="openai/x")).preload()
    names = [f"{provider}/x" for provider in asked_through_the_sdk() if provider not in SDK_ONLY]
    names += ["openai/gpt-4o", "openai/gpt-5-mini", "openai/o3-mini", "moonshot/kimi-k2.5"]
    same: list[tuple[Any, ...]] = []
    differ: list[tuple[Any, ...]] = []
    for name in names:
        found: list[Any] = []
        for flag in ("False", "True"):
            monkeypatch.setenv(FLAG, flag)
            try:
                found.append(await requested(server, name))
            except ModelError as exc:  # some want names in parts, or something of the environment
                found.append(exc.kind)
        (same if found[0] == found[1] else differ).append((name, *found))
    assert differ == []
    assert sum(isinstance(request, tuple) for _, request, _ in same) > 60


async def test_a_provider_that_only_the_sdk_reaches_is_reached_and_so_are_the_others_then(
    server: ByteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one switch for a process; who does not need the SDK is asked the same through it."""
    monkeypatch.setenv(FLAG, "True")
    alone = await requested(server, "openai/x")
    assert os.environ[FLAG] == "True"
    line, _, body = await requested(server, "veniceai/x")
    assert (line, body["model"]) == ("POST /v1/chat/completions HTTP/1.1", "x")
    assert os.environ[FLAG] == "False"
    assert await requested(server, "openai/x") == alone


@pytest.mark.slow
async def test_the_first_call_loads_nothing_big_and_no_sdk(server: ByteServer) -> None:
    """What it needs was loaded by preload(), in a thread; the SDK's 13 MB never."""
    command = [sys.executable, "-W", "ignore", "-c", CALLED, "openai/x", server.base_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    loaded, sdk = done.stdout.splitlines()
    assert not {name for name in loaded.split() if name.startswith(("litellm.proxy._types", "tiktoken", "openai."))}
    assert sdk == "False"
