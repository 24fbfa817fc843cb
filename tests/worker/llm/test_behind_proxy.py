"""Models behind a proxy, by both ways: through it, past it where settings say so, and with an authority of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from shared.errors import ModelError
from shared.settings import ModelSettings, NetworkSettings, ProxyUrl, Secret
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import EgressProxy, behind, egress_proxy, outgoing_by
from tests.helpers.openai_answer import Answer, whole_of
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.stream_server import stream_server
from worker.agent.model.model import ModelRequest
from worker.llm.clients.direct_client import DirectModel
from worker.llm.clients.litellm_client import LiteLLMModel

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

HELLO = ModelRequest([{"role": "user", "content": "hi"}])
CLIENTS = (DirectModel, LiteLLMModel)


@pytest.fixture
async def proxy() -> AsyncIterator[EgressProxy]:
    async with egress_proxy() as server:
        yield server


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_models_are_asked_through_it(
    kind: type[DirectModel | LiteLLMModel], streamed: bool, proxy: EgressProxy, server: ScriptedOpenAI
) -> None:
    """By our own client and by LiteLLM, with the user and password of the proxy."""

    async def ignore(_: str) -> None:
        return None

    proxy.hosts["models.example"] = int(server.base_url.split(":")[2].partition("/")[0])
    settings = ModelSettings(name="openai/x", api_base="http://models.example/v1", api_key=Secret("sk-x"))
    with behind(proxy.url(login="shoal:p%40ss")):
        model = kind(settings)
        answer = await model.chat(HELLO, ignore if streamed else None)
        await model.close()
    assert answer.content == "echo: hi"
    assert proxy.asked == ["POST http://models.example/v1/chat/completions"]
    assert proxy.logins == ["shoal:p@ss"]


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_model_that_is_excepted_is_asked_directly(
    kind: type[DirectModel | LiteLLMModel], proxy: EgressProxy, server: ScriptedOpenAI
) -> None:
    """By a network, which LiteLLM alone would not understand."""
    settings = ModelSettings(name="openai/x", api_base=server.base_url, api_key=Secret("sk-x"))
    with behind(proxy.url(), "127.0.0.0/8"):
        model = kind(settings)
        assert (await model.chat(HELLO)).content == "echo: hi"
        await model.close()
    assert proxy.asked == []


@pytest.mark.parametrize("kind", CLIENTS)
async def test_the_companys_authority_is_believed(
    kind: type[DirectModel | LiteLLMModel], proxy: EgressProxy, tmp_path: Path
) -> None:
    """As of a proxy that opens every connection and signs with a certificate of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line.split()[1]) for line in head.lower().splitlines() if line.startswith(b"content-length"))
        await reader.readexactly(size)
        body = msgspec.json.encode(whole_of(Answer(), "hello", {}, {"model": "x"}))
        lines = ("HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}")
        writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode() + body)
        await writer.drain()

    ca_file = authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    async with stream_server(answer, ssl=context) as port:
        settings = ModelSettings(name="openai/x", api_base=f"https://127.0.0.1:{port}/v1", api_key=Secret("sk-x"))
        for file in (None, ca_file):
            with outgoing_by(NetworkSettings(ProxyUrl(proxy.url()), (), file)):
                model = kind(settings)
                await model.preload()
                if file is None:
                    with pytest.raises(ModelError) as caught:
                        await model.chat(HELLO)
                    assert caught.value.kind == "connection"
                else:
                    assert (await model.chat(HELLO)).content == "hello"
                await model.close()
    assert set(proxy.asked) == {f"CONNECT 127.0.0.1:{port}"}
