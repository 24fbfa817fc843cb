"""The same streams through LiteLLM: the reply is the direct client's, whichever of the two asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
from msgspec.structs import replace

from shared.errors import ModelError
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_bytes import ByteServer, byte_server
from tests.worker.llm.test_streams import EVERY, REPLIES, cut, stream_of
from worker.agent.model.model import LLMResponse, ModelRequest, TokenUsage, ToolCallRequest
from worker.llm.clients.litellm_client import LiteLLMModel

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

NAMES: Final = {
    "openai": "openai/gpt-4o",
    "openrouter": "openrouter/anthropic/claude-sonnet-4.5",
    "deepseek": "deepseek/deepseek-reasoner",
    "groq": "groq/llama-3.3-70b-versatile",
    "vllm": "hosted_vllm/qwen",
    "ollama": "openai/llama3.2",
    "mistral": "mistral/magistral-medium",
    "bare": "openai/x",
}
HI: Final = [{"role": "user", "content": "hi"}]


class Asked:
    """A server of bytes, and a LiteLLMModel that asks it."""

    def __init__(self, server: ByteServer) -> None:
        self.server = server
        self.models: list[LiteLLMModel] = []

    async def ask(self, name: str = "openai/x") -> tuple[LLMResponse, str]:
        """The reply, and its deltas joined."""
        deltas: list[str] = []

        async def note(delta: str) -> None:
            deltas.append(delta)

        settings = ModelSettings(name=name, api_base=self.server.base_url, api_key=Secret("sk-x"))
        self.models.append(LiteLLMModel(settings))
        reply = await self.models[-1].chat(ModelRequest(HI), note)
        assert reply.asked == name
        return replace(reply, asked=""), "".join(deltas)


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with byte_server() as server:
        asked = Asked(server)
        yield asked
        for model in asked.models:
            await model.close()


@EVERY
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_recorded_stream_is_its_reply(asked: Asked, provider: str, chunked: bool) -> None:
    """Text, thoughts, calls and counts, by the name under which LiteLLM knows the provider."""
    asked.server.answer(stream_of(provider), chunked=chunked)
    reply, text = await asked.ask(NAMES[provider])
    assert text == (reply.content or "")
    assert reply == REPLIES[provider]


@pytest.mark.parametrize("size", [1, 7])
async def test_small_pieces_change_nothing(asked: Asked, size: int) -> None:
    """Byte by byte, through the middle of characters and of line ends."""
    stream = stream_of("openrouter").replace(b"\n", b"\r\n")
    asked.server.answer(*cut(stream, range(size, len(stream), size)))
    reply, _ = await asked.ask(NAMES["openrouter"])
    assert reply == REPLIES["openrouter"]


async def test_tokens_that_nobody_counted_are_estimated(asked: Asked) -> None:
    """So that a budget in tokens holds at every server."""
    asked.server.answer(stream_of("bare"))
    reply, _ = await asked.ask()
    assert 3 < reply.usage.prompt_tokens < 20
    assert 3 < reply.usage.completion_tokens < 60


async def test_a_connection_is_used_again_after_a_stream(asked: Asked) -> None:
    """Also after bytes behind the last event."""
    asked.server.answer(stream_of("openai"), b": bye\n\n")
    for _ in range(3):
        await asked.ask()
    assert asked.server.connections == 1


async def test_a_provider_that_does_not_stream_is_understood_too(asked: Asked) -> None:
    """Its text is one delta."""
    whole = b'{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7}}'
    asked.server.answer(whole, content_type="application/json; charset=utf-8")
    reply, text = await asked.ask()
    assert (reply.content, text, reply.usage) == ("42", "42", TokenUsage(7))


@pytest.mark.parametrize(
    ("answer", "content_type", "kind"),
    [
        (b'data: {"error": {"message": "no", "code": 429}}\n\n', "text/event-stream", "rate_limit"),
        (b'data: {"error": {"message": "maximum context length is 8192"}}\n\n', "text/event-stream", "context_length"),
        (b'data: {"error": "overheated"}\n\n', "text/event-stream", "connection"),
        (b"data: [1]\n\n", "text/event-stream", "bad_reply"),
        (b"data: \xff\n\n", "text/event-stream", "bad_reply"),
        (b": nothing\n\n", "text/event-stream", "connection"),
        (b'{"choices": []}', "application/json", "bad_reply"),
        (b'{"choices": [', "application/json", "bad_reply"),
    ],
)
async def test_what_is_wrong_in_an_answer_has_its_kind(
    asked: Asked, answer: bytes, content_type: str, kind: str
) -> None:
    """The same kinds as with the direct client, although the status was 200."""
    asked.server.answer(answer, content_type=content_type)
    with pytest.raises(ModelError) as raised:
        await asked.ask()
    assert raised.value.kind == kind


async def test_an_answer_that_breaks_off_is_a_connection_fault(asked: Asked) -> None:
    """In the middle of an event, behind text that was already shown."""
    stream = stream_of("openrouter")
    asked.server.answer(stream[: len(stream) // 2], whole=False)
    with pytest.raises(ModelError) as raised:
        await asked.ask(NAMES["openrouter"])
    assert (raised.value.kind, raised.value.retryable) == ("connection", True)


async def test_a_protocol_of_the_providers_own_is_litellms_to_read(asked: Asked) -> None:
    """Text, a call in pieces, and the tokens, which come in two parts."""
    asked.server.answer(stream_of("anthropic"))
    reply, text = await asked.ask("anthropic/claude-sonnet-4-5")
    assert (text, reply.content, reply.finish_reason) == ("I look out.", "I look out.", "tool_calls")
    assert reply.tool_calls == (ToolCallRequest("toolu_1", "weather", {"city": "Bonn"}, '{"city":"Bonn"}'),)
    assert reply.usage == TokenUsage(25, 15)
