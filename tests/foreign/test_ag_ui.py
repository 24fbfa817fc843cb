"""AG-UI's own clients, HttpAgent in JavaScript and the models of Python, in front of a real fleet: `make foreign`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from shared.store.client.redis_client import RedisClient
from tests.crash.test_api import gateway
from tests.crash.test_worker_death import HELD, WORDS
from tests.foreign.test_clients import HOME
from tests.gateway.channels.api.agui.runs import TOOL, Reader, events_of, result, user
from tests.gateway.channels.api.asking import named, post
from tests.gateway.harness import TOKENS
from tests.helpers.fleet import history, holder, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.need import need
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process as Member
from tests.helpers.wait import eventually

RAIN: Final = "Rain in Kiel."
SCRIPT: Final = (
    Answer(match="weather", role="tool", text=RAIN, times=0),
    Answer(match="weather", role="user", text="Let me look.", calls=[Call("get_weather", '{"city": "Kiel"}')], times=0),
    Answer(match="hello", text="Hello there.", times=0),
)

pytestmark = pytest.mark.timeout(300)


class Run:
    """A run of HttpAgent: its events so far, and its end."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(event.get("delta", "") for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")

    async def ended(self) -> Any:
        """Return its end."""
        async with asyncio.timeout(120):
            return await self.end


class HttpAgents:
    """A program of agents of @ag-ui/client, each by a name, which is its thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._runs: list[Run] = []

    def _tell(self, do: str, agent: str, **fields: Any) -> Run:
        run = Run()
        self._runs.append(run)
        assert self._process.stdin is not None
        line = {"id": len(self._runs) - 1, "do": do, "agent": agent, **fields}
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        return run

    def run(self, agent: str, address: str, *add: Any, token: str = TOKENS["owner"], **fields: Any) -> Run:
        """Begin a run with these messages added to those that the agent has."""
        kept = {name: fields.pop(name) for name in ("thread", "without") if name in fields}
        asked = {"url": f"http://{address}/agui", "token": token, "add": add, "ask": fields}
        return self._tell("run", agent, **asked, **kept)

    def leave(self, agent: str) -> None:
        """Close the connection."""
        self._tell("leave", agent)

    async def verified(self, agent: str) -> Any:
        """Check all runs of an agent together, as the client's validator does."""
        return await self._tell("verify", agent).ended()

    async def read(self) -> None:
        """Take what the program says, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            news = json.loads(line)
            run = self._runs[news["id"]]
            if "event" in news:
                run.events.append(news["event"])
            else:
                run.end.set_result(news["end"])
        for run in self._runs:
            if not run.end.done():
                run.end.set_exception(RuntimeError("the program of the clients has ended"))
                run.end.exception()  # some are not waited for

    def raw(self) -> str:
        """All events of all runs, each a line."""
        return "\n".join(json.dumps(event) for run in self._runs for event in run.events)


@contextlib.asynccontextmanager
async def http_agents() -> AsyncIterator[HttpAgents]:
    """The program; no proxy of the machine stands between."""
    need("foreign clients", install="run `make foreign`", found=(HOME / ".stamp").exists())
    program = HOME / "use_ag_ui.mjs"
    program.write_text(Path(__file__).with_name(program.name).read_text())
    environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        "node", program, env=environment, stdin=PIPE, stdout=PIPE, limit=1024 * 1024
    )
    agents = HttpAgents(process)
    reading = asyncio.create_task(agents.read())
    try:
        yield agents
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait([reading])
        await process.wait()


async def parsed(raw: str) -> Any:
    """What the models of Python make of events, one a line."""
    program: list[str | Path] = [HOME / "bin" / "python", "-I", Path(__file__).with_name("use_ag_ui.py")]
    process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate(raw.encode())
    assert process.returncode == 0, errors.decode()[-3000:]
    return json.loads(output)


def with_whole_texts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same events with the pieces of a text as one: where a text is cut depends on the moment it is read in."""
    whole: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT" and whole and whole[-1]["type"] == event["type"]:
            whole[-1] = whole[-1] | {"delta": whole[-1]["delta"] + event["delta"]}
        else:
            whole.append(event)
    return whole


async def fleet(spawn: Spawn, *, workers: int = 1, gateways: int = 1) -> tuple[list[str], list[Member]]:
    """The addresses of gateways, and the gateways; so many workers are ready."""
    await warm(*[spawn("worker", MODEL__CLIENT="direct") for _ in range(workers)])
    begun = [await gateway(spawn, INBOX__SENDER_PER_MINUTE="0") for _ in range(gateways)]
    return [address for _, address in begun], [member for member, _ in begun]


async def test_http_agent_talks_calls_functions_and_is_refused(spawn: Spawn, model: ScriptedOpenAI) -> None:
    """A conversation with memory, the round trip of a function, the same run at another gateway, and a wrong token; the
    client warns of nothing, its validator takes all runs of an agent together, and Python's models know every field."""
    model.script(*SCRIPT)
    [one, other], _ = await fleet(spawn, gateways=2)
    async with http_agents() as agents:
        run = agents.run("talk", one, user("hello", "u1"), context=[{"description": "Page", "value": "prices"}])
        end = await run.ended()
        assert [message["content"] for message in end["messages"]] == ["hello", "Hello there."]
        assert run.events[-1]["outcome"] == {"type": "success"}
        assert run.events[-1]["usage"][0]["inputTokens"] > 0
        await agents.run("talk", other, user("hello again", "u2")).ended()
        asked = model.requests()[-1].body["messages"]
        assert [message["role"] for message in asked[1:]] == ["user", "assistant", "user"]

        call = agents.run("tool", one, user("weather", "u1"), tools=[TOOL], runId="r1")
        [question, reply] = (await call.ended())["messages"]
        assert (question["role"], reply["content"]) == ("user", "Let me look.")
        [wanted] = reply["toolCalls"]
        assert (wanted["function"]["name"], json.loads(wanted["function"]["arguments"])) == (
            "get_weather",
            {"city": "Kiel"},
        )
        assert call.events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [wanted["id"]]}
        again = agents.run("tool", other, tools=[TOOL], runId="r1")
        assert (await again.ended())["messages"] == [question, reply], "what the client has is not sent again"
        answer = agents.run("tool", other, result(wanted["id"]), tools=[TOOL])
        assert (await answer.ended())["messages"][-1]["content"] == RAIN
        asked_in_all = len(model.requests())

        replay = agents.run("copy", other, user("weather", "u1"), thread="tool", tools=[TOOL], runId="r1")
        assert (await replay.ended())["messages"][1:] == [reply]
        assert with_whole_texts(replay.events) == with_whole_texts(call.events)
        assert len(model.requests()) == asked_in_all, "no second turn"

        wrong = await agents.run("stranger", one, user("hello"), token="wrong").ended()
        assert (wrong["error"]["status"], wrong["error"]["payload"]["error"]["code"]) == (401, "invalid_api_key")
        for agent in ("talk", "tool", "copy"):
            assert await agents.verified(agent) == {"warned": []}
        found = await parsed(agents.raw())
    assert (found["unknown"], found["events"] > 20) == ([], True)
    assert "TOOL_CALL_ARGS" in found["kinds"]
    for body in found["bodies"]:
        reply = await post(one, json.loads(body), path="/agui")
        assert Reader().read(events_of(reply.body)).text == "Let me look."


async def test_a_worker_killed_in_a_run_is_not_noticed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9 in mid-answer: the message of the client has every word once, and so has the one that it asks for again
    at the other gateway, after it lost the first one with half of the text."""
    model.script(HELD)
    [one, other], _ = await fleet(spawn, workers=2, gateways=2)
    async with http_agents() as agents:
        run = agents.run("a", one, user("tell me", "u1"), runId="r1")
        lost = agents.run("b", one, user("tell me", "u1"), thread="a", runId="r1")
        await eventually(lambda: "word40" in run.text and "word40" in lost.text, within_s=60, what="half of the text")
        agents.leave("b")
        await lost.ended()
        (await holder(client, named("a"))).kill()
        again = agents.run("b", other, thread="a", runId="r1")
        model.release()
        for found in (await run.ended(), await again.ended()):
            assert [message["content"] for message in found["messages"]] == ["tell me", WORDS]
        assert again.text == WORDS.removeprefix(lost.text)
        assert await agents.verified("a") == {"warned": []}
        await parsed(agents.raw())
    assert await replies(client, named("a")) == [WORDS]
    assert len(await history(client, named("a"))) == 2


async def test_a_run_is_stopped_by_a_message_and_outlives_its_gateway(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """`/stop` in the same thread cancels the run. A gateway killed in mid-answer breaks the stream; asked again with
    the same id at the other one, the text is whole in the same message."""
    model.script(HELD)
    [one, other], [first, _] = await fleet(spawn, gateways=2)
    async with http_agents() as agents:
        run = agents.run("a", one, user("tell me", "u1"))
        await eventually(lambda: "word40" in run.text, within_s=60, what="half of the text")
        stop = agents.run("stopper", other, user("/stop", "s1"), thread="a")
        assert (await stop.ended())["added"], "a command is answered"
        model.release()
        await run.ended()
        assert run.events[-1]["outcome"] == {"type": "cancelled"}

        model.reset()
        model.script(HELD)
        run = agents.run("b", one, user("tell me", "u1"), runId="r1")
        await eventually(lambda: "word40" in run.text, within_s=60, what="half of the text")
        first.kill_group()
        assert (await run.ended())["error"], "the connection broke"
        again = agents.run("b", other, runId="r1")
        model.release()
        assert [message["content"] for message in (await again.ended())["messages"]] == ["tell me", WORDS]
        assert len(model.requests()) == 1
        assert await agents.verified("stopper") == {"warned": []}
    assert await replies(client, named("b")) == [WORDS]
