"""CPU of one model call in the worker's process: the direct client against LiteLLM, whole and streamed.

The prompt has 40 messages and 8 tools, the streamed reply 100 deltas. Each side is a process of its own, as a worker
has one client and not both; the model server is another. The sides take turns, so that a slow moment of the machine
meets all of them. Counted is CPU time, waiting is not. `socket` only sends and reads the same bytes: what nobody can go
below.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from shared.settings import ModelSettings, Secret
from tests.bench.table import Figure, show
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.agent.model import ToolSpec
from worker.llm.providers import choose
from worker.llm.registry import build_model
from worker.llm.wire import RequestWriter

Call = Callable[[str], Awaitable[None]]
Close = Callable[[], Awaitable[None]]

ROUNDS: Final = 15
DELTAS: Final = 100
SIDES: Final = ("socket", "direct", "litellm")
WAYS: Final = ("whole", "stream, all at once", "stream, 5 ms apart")
_CALLS: Final = {"socket": 40, "direct": 40, "litellm": 10}  # a round, so that the clock's grain does not count
_PIECES: Final = [f"word{n} " for n in range(DELTAS)]
_WORDS: Final = "The shoal turned as one, a thousand small fish and not one of them in charge of the others. "


def prompt(last: str) -> list[dict[str, Any]]:
    """A conversation of 40 messages with tool calls in it; with the tools it is a body of 28 kB."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _WORDS * 40}]
    call = {"type": "function", "function": {"name": "tool_1", "arguments": '{"text": "some text", "count": 3}'}}
    for n in range(13):
        messages.append({"role": "user", "content": f"{n}: {_WORDS * 5}"})
        messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{n}", **call}]})
        messages.append({"role": "tool", "tool_call_id": f"call_{n}", "name": "tool_1", "content": _WORDS * 6})
    return [*messages[:-1], {"role": "user", "content": last}]


def tools() -> tuple[ToolSpec, ...]:
    """Eight tools with five parameters each."""
    properties = {f"parameter_{n}": {"type": "string", "description": _WORDS} for n in range(5)}
    schema = {"type": "object", "properties": properties, "required": ["parameter_0"], "additionalProperties": False}
    return tuple(ToolSpec(f"tool_{n}", _WORDS, schema) for n in range(8))


# --- a side, in its own process


class Ready(msgspec.Struct, frozen=True):
    """What it took a side to get ready, with the agent already imported."""

    seconds: float
    megabytes: float


async def side(name: str, base_url: str) -> None:
    """Get ready and say so; then for each line, which names a way, the CPU milliseconds of a call."""
    began, before = time.perf_counter(), _resident_mb()
    call, close = await _caller(name, base_url)
    print(msgspec.json.encode(Ready(time.perf_counter() - began, _resident_mb() - before)).decode(), flush=True)
    for line in iter(sys.stdin.readline, ""):
        way = line.strip()
        calls = 2 if "apart" in way else _CALLS[name]
        started = time.process_time()
        for _ in range(calls):
            await call(way)
        print((time.process_time() - started) / calls * 1000, flush=True)
    await close()


async def _caller(name: str, base_url: str) -> tuple[Call, Close]:
    offered = tools()
    asked = {way: prompt(way) for way in WAYS}
    settings = ModelSettings(
        name="openai/scripted",
        api_base=base_url,
        api_key=Secret("sk-x"),
        client="litellm" if name == "litellm" else "direct",
    )
    if name == "socket":
        writer = RequestWriter(choose(settings))
        body = {
            way: writer.write(messages, offered, max_tokens=9, temperature=0.7, stream="stream" in way)
            for way, messages in asked.items()
        }
        return await _socket(int(base_url.rpartition(":")[2].partition("/")[0]), body)
    model = build_model(settings)
    await model.warm()

    async def ignore(delta: str) -> None:
        pass

    async def call(way: str) -> None:
        reply = await model.chat(asked[way], offered, on_delta=ignore if "stream" in way else None)
        assert reply.content == "".join(_PIECES)

    return call, model.close


async def _socket(port: int, body: dict[str, bytes]) -> tuple[Call, Close]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def call(way: str) -> None:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body[way])}\r\n\r\n"
        writer.write(head.encode() + body[way])
        end, tail = (b"0\r\n\r\n" if "stream" in way else b"}}"), b""
        while not tail.endswith(end):
            tail = tail[-8:] + await reader.read(65536)

    async def close() -> None:
        writer.close()
        await writer.wait_closed()

    return call, close


def _resident_mb() -> float:
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(pages.read_text().split()[1]) * resource.getpagesize() / 1024 / 1024


# --- all of them


class Side:
    """A side's process."""

    def __init__(self, name: str, base_url: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.bench.llm", name, base_url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = msgspec.json.decode(self._line(), type=Ready)

    def spend(self, way: str) -> float:
        """CPU milliseconds of one call."""
        assert self._process.stdin is not None
        print(way, file=self._process.stdin, flush=True)
        return float(self._line())

    def end(self) -> None:
        self._process.communicate(timeout=30)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def main(*, rounds: int, as_json: bool) -> None:
    spent: dict[tuple[str, str], list[float]] = {(way, name): [] for way in WAYS for name in SIDES}
    with ScriptedOpenAI() as server:
        server.script(Answer(match="apart", pieces=_PIECES, delta_s=0.005, times=0), Answer(pieces=_PIECES, times=0))
        sides = {name: Side(name, server.base_url) for name in SIDES}
        for way in WAYS:
            for one in sides.values():
                one.spend(way)  # warms up
        for _ in range(rounds or ROUNDS):
            for way, name in spent:
                spent[way, name].append(sides[name].spend(way))
        for one in sides.values():
            one.end()
    figures = [Figure(f"{way}: {name}", "ms CPU a call", tuple(values)) for (way, name), values in spent.items()]
    for name in SIDES[1:]:
        figures.append(Figure(f"ready: {name}", "s", (sides[name].ready.seconds,)))
        figures.append(Figure(f"ready: {name}", "MB more", (sides[name].ready.megabytes,)))
    notes = []
    for way in WAYS:
        slow, fast = (statistics.median(spent[way, name]) for name in ("litellm", "direct"))
        notes.append(f"{way}: the direct client takes 1/{slow / fast:.0f} of LiteLLM's CPU")
    show("llm: 40 messages, 8 tools, 100 deltas", figures, notes=notes, as_json=as_json)


if __name__ == "__main__":
    uvloop.run(side(*sys.argv[1:]))  # as a worker runs
