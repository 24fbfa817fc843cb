"""Streams in the formats that providers document, cut anywhere: always the same reply.

The files in streams/ were written by hand. `bare` is the least that a server can send: no index, no id, no finish
reason, arguments as an object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.settings import ModelSettings
from tests.helpers.openai_bytes import byte_server
from worker.agent.model.model import LLMResponse, ModelRequest, TokenUsage, ToolCallRequest
from worker.llm.clients.direct_client import DirectModel

_COLOGNE: Final = '{"city":"Köln"}'
_BONN: Final = '{"city":"Bonn"}'


def asks(*calls: ToolCallRequest, usage: TokenUsage) -> LLMResponse:
    return LLMResponse(content=None, tool_calls=calls, finish_reason="tool_calls", usage=usage)


def weather(id_: str, raw: str) -> ToolCallRequest:
    return ToolCallRequest(id_, "weather", {"city": "Köln" if raw == _COLOGNE else "Bonn"}, raw)


MODELS: Final = {
    "openai": "gpt-4o",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "deepseek": "deepseek-reasoner",
    "groq": "llama-3.3-70b-versatile",
    "vllm": "qwen",
    "ollama": "llama3.2",
    "mistral": "magistral-medium",
    "bare": "",
}
_EXPECTED: Final = {
    "openai": asks(weather("call_abc", _COLOGNE), ToolCallRequest("call_2", "clock", {}, ""), usage=TokenUsage(81, 14)),
    "openrouter": LLMResponse(
        content="Es regnet in Köln \u2614", usage=TokenUsage(20, 9), reasoning_content="Cologne, then."
    ),
    "deepseek": LLMResponse(content="42", usage=TokenUsage(11, 7), reasoning_content="6 times 7"),
    "groq": asks(weather("call_abc", _COLOGNE), weather("call_2", _BONN), usage=TokenUsage(50, 20)),
    "vllm": asks(weather("call_abc", _COLOGNE), weather("call_2", _BONN), usage=TokenUsage(30, 18)),
    "ollama": asks(weather("call_abc", _COLOGNE), usage=TokenUsage(170, 16)),
    "mistral": LLMResponse(content="It is 42", usage=TokenUsage(12, 20), reasoning_content="6 times 7"),
    "bare": asks(weather("", _COLOGNE), weather("", _BONN), usage=TokenUsage(5, 12)),  # estimated
}
REPLIES: Final = {name: replace(reply, model=MODELS[name]) for name, reply in _EXPECTED.items()}
EVERY: Final = pytest.mark.parametrize("provider", REPLIES)


def stream_of(provider: str) -> bytes:
    return (Path(__file__).parent / "streams" / f"{provider}.sse").read_bytes()


def cut(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


async def ask(pieces: Sequence[bytes], *, chunked: bool = True) -> LLMResponse:
    """The reply to a request that is answered with these pieces; its deltas are its content."""
    deltas: list[str] = []

    async def note(delta: str) -> None:
        deltas.append(delta)

    async with byte_server() as server:
        server.answer(*pieces, chunked=chunked)
        model = DirectModel(ModelSettings(name="openai/x", api_base=server.base_url))
        try:
            reply = await model.chat(ModelRequest([{"role": "user", "content": "hi"}]), note)
        finally:
            await model.close()
    assert ("".join(deltas), reply.asked) == (reply.content or "", "openai/x")
    return replace(reply, asked="")


@EVERY
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_whole_stream_is_its_reply(provider: str, line_end: bytes, chunked: bool) -> None:
    """Text, thoughts, calls and counts, with either line end, and with either way to end an answer."""
    assert await ask([stream_of(provider).replace(b"\n", line_end)], chunked=chunked) == REPLIES[provider]


@EVERY
@pytest.mark.parametrize("size", [1, 7])
async def test_small_pieces_change_nothing(provider: str, size: int) -> None:
    """Byte by byte, through the middle of characters and of line ends."""
    stream = stream_of(provider).replace(b"\n", b"\r\n")
    assert await ask(cut(stream, range(size, len(stream), size))) == REPLIES[provider]


@EVERY
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_pieces_change_nothing(provider: str, data: st.DataObject) -> None:
    """Wherever the network cuts."""
    stream = stream_of(provider)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30).map(sorted))
    assert asyncio.run(ask(cut(stream, cuts))) == REPLIES[provider]
