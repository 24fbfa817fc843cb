"""A model's provider in this process, and a turn that asks it: what is refused, and what is sent then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from shared.messages.transcript import UserEntry
from shared.settings import ModelSettings, Secret
from tests.helpers.stream_server import stream_server
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress
from worker.agent.loop import run_agent
from worker.agent.model.compact import compact
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.llm.registry import Models
from worker.tools.registry import build_tools

DATA: Final = Path(__file__).parents[1] / "data" / "reports"
SPEC: Final = AgentRunSpec(session="s", entry=UserEntry(content="question", turn=7), system="be", channel="web")

Body = dict[str, Any]
Rule = Callable[[Body], tuple[int, Any]]
"""Gives status and body of the answer to a request: a list is the lines of a stream."""


def report(name: str) -> Any:
    """Return the inputs of one file of reports."""
    return msgspec.json.decode((DATA / name).read_bytes())


def refusal(message: str, **fields: Any) -> Body:
    return {"error": {"message": message, **fields}}


def text_stream(text: str, **usage: int) -> list[str]:
    """Return a stream of one text."""
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    end: Body = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    end |= {"usage": usage} if usage else {}
    return [f"data: {msgspec.json.encode(each).decode()}" for each in (chunk, end)] + ["data: [DONE]"]


class Provider:
    """A server that answers by a rule. `requests` are the bodies that it got."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.requests: list[Body] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(line for line in head.splitlines() if line.startswith("content-length:"))
        body = msgspec.json.decode(await reader.readexactly(int(length.partition(":")[2])))
        self.requests.append(body)
        status, answer = self.rule(body)
        if isinstance(answer, list) and not body.get("stream"):
            answer = whole_of(answer)
        if isinstance(answer, list):
            kind, data = "text/event-stream", "".join(f"{line}\n\n" for line in answer).encode()
        else:
            kind, data = "application/json", msgspec.json.encode(answer)
        head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()

    def settings(self, **more: Any) -> ModelSettings:
        chosen: Body = {
            "name": "openai/x",
            "api_base": f"http://127.0.0.1:{self.port}/v1",
            "api_key": Secret("sk-x"),
            "retry_waits_s": (0.0,),
        } | more
        return ModelSettings(**chosen)


def whole_of(lines: Sequence[str]) -> Body:
    """Return the answer in one piece that says the same as the text of a stream."""
    chunks = [msgspec.json.decode(line.removeprefix("data: ")) for line in lines if "[DONE]" not in line]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@contextlib.asynccontextmanager
async def provider(rule: Rule) -> AsyncIterator[Provider]:
    served = Provider(rule)
    async with stream_server(served.handle, limit=8 * 1024 * 1024) as served.port:
        yield served


async def turn(settings: ModelSettings, **spec: Any) -> AgentResult:
    """Run one turn with the tool `calculate` and the models of the settings; it is streamed."""
    models = Models(settings)
    try:
        model = models.get()
        asked = msgspec.structs.replace(
            SPEC, **{"progress": RecordingProgress(), "compact": partial(compact, model)} | spec
        )
        return await run_agent(asked, model, Toolbox(build_tools(["calculate"])), MemoryJournal())
    finally:
        await models.close()
