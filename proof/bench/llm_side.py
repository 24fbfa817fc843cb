"""One client of models in a process of its own: `python -m proof.bench.llm_side <name> <address>`.

It gets ready and says so; then for each line, which names a model of the stub and `whole` or `stream`, it says the CPU
milliseconds of a call. `direct` and `litellm` are Shoal's two clients, `stock` is LiteLLM called as its manual says,
`handler` the same through its own HTTP handler, `openai` the SDK that it uses by itself. `socket` only sends and reads
the same bytes: what nobody can go below.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import msgspec
import uvloop

from proof.bench.children import memory_kb
from proof.bench.stub import model_name, text_of
from shared.settings import ModelSettings, Secret
from worker.agent.model.model import ModelRequest, ToolSpec
from worker.llm.clients.wire import RequestWriter, offer
from worker.llm.registry import Models
from worker.llm.routes import choose

SIDES: Final = ("socket", "direct", "litellm", "stock", "handler", "openai")
CALLS: Final = {"socket": 40, "direct": 40, "litellm": 40, "stock": 8, "handler": 8, "openai": 8}
"""In a round, so that the clock's grain does not count."""

Call = Callable[[str, bool], Awaitable[str]]
_WORDS: Final = "The shoal turned as one, a thousand small fish and not one of them in charge of the others. "


class Ready(msgspec.Struct, frozen=True):
    """What it took to get ready, with the agent already imported."""

    seconds: float
    megabytes: float


def prompt() -> list[dict[str, Any]]:
    """A conversation of 40 messages with tool calls in it; with the tools it is a body of 28 kB."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _WORDS * 40}]
    call = {"type": "function", "function": {"name": "tool_1", "arguments": '{"text": "some text", "count": 3}'}}
    for n in range(13):
        messages.append({"role": "user", "content": f"{n}: {_WORDS * 5}"})
        messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{n}", **call}]})
        messages.append({"role": "tool", "tool_call_id": f"call_{n}", "name": "tool_1", "content": _WORDS * 6})
    return [*messages[:-1], {"role": "user", "content": "And now?"}]


def tools() -> tuple[ToolSpec, ...]:
    """Eight tools with five parameters each."""
    properties = {f"parameter_{n}": {"type": "string", "description": _WORDS} for n in range(5)}
    schema = {"type": "object", "properties": properties, "required": ["parameter_0"], "additionalProperties": False}
    return tuple(ToolSpec(f"tool_{n}", _WORDS, schema) for n in range(8))


def settings(name: str, model: str, base_url: str) -> ModelSettings:
    """Those of one model of the stub."""
    client: Literal["direct", "litellm"] = "litellm" if name == "litellm" else "direct"
    return ModelSettings(name=f"openai/{model}", api_base=base_url, api_key=Secret("sk-x"), client=client)


async def ours(name: str, base_url: str) -> Call:
    """As a worker has it."""
    messages, offered = prompt(), tools()
    models = {}

    async def ignore(delta: str) -> None:
        pass

    async def call(model: str, stream: bool) -> str:
        if model not in models:
            models[model] = Models(settings(name, model, base_url)).get()
        reply = await models[model].chat(ModelRequest(messages, offered), ignore if stream else None)
        return reply.content or ""

    await Models(settings(name, model_name(1), base_url)).get().preload()
    return call


def _asked() -> dict[str, Any]:
    return {"messages": prompt(), "tools": [offer(tool) for tool in tools()], "tool_choice": "auto"}


async def _text(answer: Any, stream: bool) -> str:
    """What an answer of the SDK, or of LiteLLM, says."""
    if not stream:
        return str(answer.choices[0].message.content)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])


async def stock(base_url: str) -> Call:
    """LiteLLM alone, with its own settings but for what it would fetch from the internet."""
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION")
    import litellm

    fixed = {"api_base": base_url, "api_key": "sk-x", "max_retries": 0}
    asked = _asked()

    async def call(model: str, stream: bool) -> str:
        answer = await litellm.acompletion(model=f"openai/{model}", stream=stream, **fixed, **asked)
        return await _text(answer, stream)

    return call


async def sdk(base_url: str) -> Call:
    """The SDK alone."""
    import openai

    client: Any = openai.AsyncOpenAI(base_url=base_url, api_key="sk-x", max_retries=0)
    asked = _asked()

    async def call(model: str, stream: bool) -> str:
        return await _text(await client.chat.completions.create(model=model, stream=stream, **asked), stream)

    return call


async def socket(base_url: str) -> Call:
    """The same bytes and nothing else; the answer is not read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base_url.rpartition(":")[2].partition("/")[0]))
    messages, offered, requests = prompt(), tools(), {}

    async def call(model: str, stream: bool) -> str:
        if (model, stream) not in requests:
            made = RequestWriter(choose(settings("socket", model, base_url)))
            body = made.write(ModelRequest(messages, offered), stream=stream)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            requests[model, stream] = head.encode() + body
        writer.write(requests[model, stream])
        end, tail = (b"0\r\n\r\n" if stream else b"}}"), b""
        while not tail.endswith(end):
            tail = tail[-8:] + await reader.read(65536)
        return ""

    return call


async def side(name: str, base_url: str) -> None:
    began, before = time.perf_counter(), memory_kb(os.getpid())
    made = {"socket": socket, "openai": sdk, "stock": stock, "handler": stock}
    call = await (made[name](base_url) if name in made else ours(name, base_url))
    grown = (memory_kb(os.getpid()) - before) / 1024
    print(msgspec.json.encode(Ready(time.perf_counter() - began, grown)).decode(), flush=True)
    for line in iter(sys.stdin.readline, ""):
        model, how = line.split()
        calls = 2 if not model.endswith("-g0") else CALLS[name]
        text = "" if name == "socket" else "".join(text_of(int(model[1:].partition("-")[0])))
        started = time.process_time()
        for _ in range(calls):
            assert await call(model, how == "stream") == text
        print((time.process_time() - started) / calls * 1000, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "handler":
        os.environ["EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"] = "True"
    uvloop.run(side(*sys.argv[1:]))  # as a worker runs
