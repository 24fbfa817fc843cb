"""The scripted server is what the tests say it is."""

from __future__ import annotations

import asyncio
import json
import time

from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually


async def stream(server: ScriptedOpenAI, text: str) -> list[str]:
    """The data lines of one streamed answer, read without any client library."""
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]


async def test_a_rule_is_chosen_by_the_last_text_and_used_up_in_order(server: ScriptedOpenAI) -> None:
    """Once, twice, always; the echo is what is left."""
    server.script(
        Answer(match="^a", text="first"), Answer(match="a", text="always", times=0), Answer(match="b", text="b")
    )
    replies = [
        "".join(
            json.loads(line)["choices"][0]["delta"].get("content", "")
            for line in await stream(server, text)
            if line != "[DONE]"
        )
        for text in ("a", "a", "b", "b\n\n[Runtime Context]\na", "ba")
    ]
    assert replies == ["first", "always", "b", "echo: b", "always"]
    requests = server.requests()
    assert len(requests) == server.stats()["requests"] == 5
    assert requests[0].body["stream"] is True
    assert abs(requests[0].at - time.time()) < 60
    server.reset()
    assert server.requests() == []


async def test_500_streams_run_at_once(server: ScriptedOpenAI) -> None:
    """Load tests need a model that is never the narrow place."""
    server.script(Answer(text="a b c d", held_after=2, times=0))
    streams = asyncio.gather(*(stream(server, "hi") for _ in range(500)))
    await eventually(lambda: server.stats()["open"] == 500, within_s=60, every_s=0.1)
    server.release()
    assert all(answer[-1] == "[DONE]" and len(answer) == 7 for answer in await streams)
