"""Pages with `useChat` of the AI SDK 5, 6 and 7, in front of gateways and workers that die: `make foreign`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.messages.transcript import ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway, working
from tests.crash.test_client_calls import KIEL
from tests.crash.test_worker_death import HELD, WORDS
from tests.foreign.test_clients import HOME
from tests.gateway.channels.api.aisdk.test_fold import GOLDEN
from tests.gateway.channels.api.asking import named, post
from tests.gateway.harness import TOKENS
from tests.helpers.fleet import history, holder, replies
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.media_files import png
from tests.helpers.need import need
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

SCRIPT = (
    Answer(match="umbrella", role="user", text="Let me look.", calls=[Call("get_weather", KIEL, "w1")]),
    Answer(match="umbrella", role="tool", text="Take one."),
    Answer(match="^look", text="A picture."),
    Answer(match="refuse", status=400, error={"message": "no"}),
)

versions = pytest.mark.parametrize("version", ["5", "6", "7"])


class Browser:
    """The library in node, with its pages."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, op: str, **fields: Any) -> Any:
        """Run an operation of `use_chat.mjs`."""
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        async with asyncio.timeout(60):
            line = await reader.readline()
        assert line, "node has ended"
        reply = json.loads(line)
        assert "error" not in reply, reply["error"]
        return reply["result"]

    async def state(self, page: str) -> Any:
        return await self.do("state", page=page)

    async def rests(self, page: str, status: str = "ready") -> list[Any]:
        """Wait until a page waits for its person; its messages."""

        async def at_rest() -> Any:
            state = await self.state(page)
            assert state["status"] == status, state
            return state

        found = await eventually(at_rest, within_s=60, what=f"a page that is {status}")
        messages: list[Any] = found["messages"]
        return messages

    async def shows(self, page: str, text: str) -> None:
        """Wait until the answer on a page has a text."""

        async def shown() -> None:
            messages = (await self.state(page))["messages"]
            assert text in text_of(messages[-1])

        await eventually(lambda: _true(shown()), within_s=60, what=f"{text!r} on the page")


async def _true(check: Any) -> bool:
    await check
    return True


def text_of(message: Any) -> str:
    """The texts of a message of an answer; each is whole when the page rests."""
    assert message["role"] == "assistant"
    return "|".join(part["text"] for part in message["parts"] if part["type"] == "text")


@contextlib.asynccontextmanager
async def browser(version: str) -> AsyncIterator[Browser]:
    need("foreign clients", install="run `make foreign`", found=(HOME / ".stamp").exists())
    # Packages are looked for from the folder of the program upwards.
    program = HOME / "use_chat.mjs"
    program.write_text(Path(__file__).with_name(program.name).read_text())
    environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        "node", program, version, TOKENS["owner"], env=environment, stdin=PIPE, stdout=PIPE, limit=2**20
    )
    try:
        yield Browser(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@versions
async def test_the_recorded_bytes_are_read_by_the_library(version: str) -> None:
    """Each stream of the recording: its text, calls, error, and no chunk that is unknown."""
    streams = [f"{one}data: [DONE]\n\n" for one in GOLDEN.read_text().split("data: [DONE]\n\n")[:-1]]
    async with browser(version) as page:
        read = [await page.do("parse", data=one) for one in streams]
    assert [text_of(one["message"]) for one in read] == [
        "Hello, \u201cKiel\u201d.",
        "Let me see.",
        "Once upon\n\nTwice",
        "Half",
        "Half",
    ]
    assert [one["failed"] for one in read] == ["", "", "", "", "The agent gave up."]
    calls = [part for part in read[1]["message"]["parts"] if part["type"].startswith("tool-")]
    assert [(part["type"], part["state"]) for part in calls] == [
        ("tool-get_weather", "input-available"),
        ("tool-beep", "input-available"),
    ]
    assert all(part["state"] == "done" for one in read for part in one["message"]["parts"] if part["type"] == "text")


@versions
async def test_a_conversation(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, version: str) -> None:
    """Memory, a picture, a function that the page runs, a message that is sent twice, and errors in words."""
    model.script(*SCRIPT)
    await working(spawn)
    _, address = await gateway(spawn, INBOX__SENDER_PER_MINUTE="0")
    async with browser(version) as page:
        await page.do("open", page="a", chat="c", address=address)
        await page.do("send", page="a", text="I am Ann")
        [_, answer] = await page.rests("a")
        assert text_of(answer) == "echo: I am Ann"
        assert answer["id"].startswith("resp_")

        url = f"data:image/png;base64,{b64encode(png()).decode()}"
        file = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url}
        await page.do("send", page="a", text="look", files=[file])
        assert text_of((await page.rests("a"))[-1]) == "A picture."
        asked = model.requests()[-1].body["messages"]
        assert [one["content"] for one in asked if one["role"] == "assistant"] == ["echo: I am Ann"]
        assert any(part["type"] == "image_url" for part in asked[-1]["content"])

        await page.do("send", page="a", text="an umbrella?")
        await page.shows("a", "Take one.")
        messages = await page.rests("a")
        assert text_of(messages[-1]) == "Let me look.|Take one."
        assert len(messages) == 6
        assert (await page.state("a"))["calls"] == [json.loads(KIEL)]
        found = [entry for entry in await history(client, named("c")) if isinstance(entry, ToolEntry)]
        assert [(entry.name, json.loads(entry.content)) for entry in found] == [
            ("get_weather", {"city": "Kiel", "weather": "rain"})
        ]

        before = len(model.requests())
        again = await page.do("again", page="a", messages=messages[:3])
        assert (text_of(again["message"]), again["message"]["id"]) == ("A picture.", messages[3]["id"])
        assert len(model.requests()) == before
        first_step = [part for part in messages[-1]["parts"] if part.get("text") != "Take one."][:-1]
        result = await page.do("again", page="a", messages=[messages[-1] | {"parts": first_step}])
        assert text_of(result["message"]) == "Take one."
        assert len(model.requests()) == before

        await page.do("send", page="a", text="refuse")
        await page.rests("a", "error")
        assert (await page.state("a"))["error"].startswith("Sorry, the model refused this request.")
        await page.do("regenerate", page="a")
        await eventually(lambda: _error(page, "a", "An answer cannot be made again here, because"), within_s=30)
        await page.do("open", page="b", chat="c", address=address, secret="wrong")
        await page.do("send", page="b", text="hello")
        await page.rests("b", "error")
        assert (await page.state("b"))["error"] == "A valid token is needed: Authorization: Bearer …"


async def _error(page: Browser, name: str, words: str) -> bool:
    return str((await page.state(name))["error"]).startswith(words)


@versions
async def test_a_reload_in_mid_answer_at_another_gateway(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, version: str
) -> None:
    """The first gateway is killed: the page that is opened again has what stands, and then the rest, once, also where
    half of it stood there."""
    model.script(HELD)
    await working(spawn)
    (first, one), (_, two) = await gateway(spawn), await gateway(spawn)
    async with browser(version) as page:
        await page.do("open", page="a", chat="c", address=one)
        await page.do("send", page="a", text="tell me")
        await page.shows("a", "word40")
        [asked, half] = (await page.state("a"))["messages"]
        first.popen.kill()
        await page.rests("a", "error")
        await page.do("open", page="b", chat="c", address=two, messages=[asked])
        await page.do("resume", page="b")
        await page.shows("b", "word40")
        await page.do("open", page="half", chat="c", address=two, messages=[asked, half])
        await page.do("resume", page="half")
        model.release()
        [_, answer] = await page.rests("b")
        assert (text_of(answer), answer["id"]) == (WORDS, half["id"])
        [_, answer] = await page.rests("half")
        assert text_of(answer) == WORDS
        await page.do("resume", page="b")
        assert len(await page.rests("b")) == 2
    assert await replies(client, named("c")) == [WORDS]
    assert len(model.requests()) == 1


async def test_a_worker_killed_in_mid_answer(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """The page has the whole text, once."""
    model.script(HELD)
    await working(spawn, 2)
    _, address = await gateway(spawn)
    async with browser("7") as page:
        await page.do("open", page="a", chat="c", address=address)
        await page.do("send", page="a", text="tell me")
        await page.shows("a", "word40")
        (await holder(client, named("c"))).kill()
        model.release()
        [_, answer] = await page.rests("a")
    assert text_of(answer) == WORDS
    assert await replies(client, named("c")) == [WORDS]


async def test_stop(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """`stop()` closes the connection and the turn goes on; the address ends it, and the chat goes on."""
    model.script(HELD)
    await working(spawn)
    (_, one), (_, two) = await gateway(spawn), await gateway(spawn)
    async with browser("7") as page:
        await page.do("open", page="a", chat="c", address=one)
        await page.do("send", page="a", text="tell me")
        await page.shows("a", "word40")
        await page.do("stop", page="a")
        [asked, _] = await page.rests("a")
        await page.do("open", page="b", chat="c", address=two, messages=[asked])
        await page.do("resume", page="b")
        await page.shows("b", "word40")
        assert (await post(two, path="/aisdk/chat/c/stop")).status == 204
        [_, answer] = await page.rests("b")
        assert "word40" in text_of(answer)
        assert "word59" not in text_of(answer)
        model.reset()
        await page.do("send", page="b", text="and now?")
        await page.shows("b", "echo: and now?")


async def test_a_turn_that_waits_for_a_function_is_ended(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """By the address, or by a message in place of the result; nothing of it can be resumed."""
    await working(spawn)
    _, address = await gateway(spawn)

    async def at_rest() -> bool:
        return not await client.command("XLEN", keys.inbox(named("c")))

    async with browser("7") as page:
        await page.do("open", page="a", chat="c", address=address, answers=False)
        for text in ("stop", "never mind"):
            model.script(*SCRIPT)
            await page.do("send", page="a", text="umbrella")
            messages = await page.rests("a")
            assert (messages[-1]["parts"][-1]["state"], text_of(messages[-1])) == ("input-available", "Let me look.")
            assert not await at_rest()
            assert (await post(address, path="/aisdk/chat/c/stream", method="GET")).status == 204
            if text == "stop":
                assert (await post(address, path="/aisdk/chat/c/stop")).status == 204
                await eventually(at_rest, within_s=30)
            await page.do("send", page="a", text=text)
            assert text_of((await page.rests("a"))[-1]) == f"echo: {text}"
