"""Traces of a real fleet, as a collector gets them: one message, one trace, whoever worked on it and whoever died."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.tracing import fresh
from shared.tracing.tracer import parse
from tests.crash.test_worker_death import HELD, stands
from tests.gateway.harness import Client, Frame, answers, free_port
from tests.gateway.harness import client as connected
from tests.helpers.build import message
from tests.helpers.fleet import holder, replies, warm, watching
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.otlp_server import Collector, Got, collector, undeclared
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
TOKEN = "token-canary-of-the-page"
CANARY = "canary-of-a-message"
HEADER = "canary-of-the-collector"
LONG_S = 60.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def there() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture
def config(tmp_path: Path, there: Collector) -> str:
    """A settings file with the collector's address, and a secret for it."""
    file = tmp_path / "shoal.toml"
    file.write_text(
        f'[tracing]\nendpoint = "{there.address}"\nheaders = {{ Authorization = "{HEADER}" }}\n'
        f'[web]\ntoken = "{TOKEN}"\n[approval]\ntools = ["roll_dice"]\n'
    )
    return str(file)


async def gateway(spawn: Spawn, config: str) -> tuple[Process, str]:
    port = free_port()
    made = spawn("gateway", WEB__PORT=str(port), env={"SHOAL_CONFIG": config})
    await eventually(lambda: answers(f"127.0.0.1:{port}"), within_s=LONG_S)
    return made, f"127.0.0.1:{port}"


async def received(page: Client, type: str, **fields: Any) -> Frame:
    """The next frame of this type, however long a busy machine takes."""
    async with asyncio.timeout(LONG_S):
        while True:
            with contextlib.suppress(TimeoutError):
                return await page.next(type, **fields)


def above(span: Got, spans: list[Got]) -> Got:
    """The parent of a span."""
    [found] = [one for one in spans if one.span_id == span.parent]
    return found


async def test_a_message_a_tool_and_a_subagent_are_one_trace_through_all_processes(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, there: Collector, config: str
) -> None:
    """Gateway, the worker of the turn, the worker of the subagent, the turn that tells of it, and the page: each span
    below the one that caused it, none without a parent but the first, and nothing of what was said in any."""
    model.script(
        Answer(match=r"^\[Subagent", text=f"it found {CANARY}"),
        Answer(match="^dig", role="tool", text=f"gold, says {CANARY}"),
        Answer(match="^dig", calls=[Call("calculate", f'{{"expression": "6*7 # {CANARY}"}}', "c9")]),
        Answer(match="^please", role="tool", text=f"started {CANARY}"),
        Answer(
            match="^please",
            calls=[
                Call("current_time", "{}", "c1"),
                Call("spawn", json.dumps({"task": f"dig {CANARY}", "label": CANARY}), "c2"),
            ],
        ),
    )
    door, address = await gateway(spawn, config)
    env = {"SHOAL_CONFIG": config}
    fleet = [spawn("worker", queue, MODEL__CLIENT="direct", env=env) for queue in ("turns", "jobs")]
    await warm(*fleet)
    async with connected(address, TOKEN) as page:
        await page.send("resume", chat="a", after=0)
        await received(page, "resumed")
        await page.say("a", f"please dig {CANARY}")
        await received(page, "reply", text=f"started {CANARY}")
        await received(page, "reply", text=f"it found {CANARY}")
    for process in (door, *fleet):
        process.terminate()
    assert [process.wait(30) for process in (door, *fleet)] == [0, 0, 0]

    spans = there.spans
    assert undeclared(spans) == []
    [first] = [span for span in spans if not span.parent]
    assert (first.name, first.kind) == ("receive", "producer")
    assert {span.trace_id for span in spans} == {first.trace_id}
    assert not any(span.failed for span in spans if span.name != "execute_tool calculate")

    turn, telling = there.named("turn")
    subagent = there.one("subagent")
    [agent] = [span for span in there.named("invoke_agent shoal") if above(span, spans) is turn]
    its = there.one("invoke_agent subagent")
    spawned = there.one("execute_tool spawn")
    assert above(turn, spans) is first
    assert above(spawned, spans) is above(there.one("execute_tool current_time"), spans) is agent
    assert above(subagent, spans) is spawned
    assert above(its, spans) is subagent
    assert above(there.one("execute_tool calculate"), spans) is its
    assert above(telling, spans) is subagent
    chats = there.named("chat scripted")
    assert [above(chat, spans) for chat in chats].count(agent) == 2
    assert [above(chat, spans) for chat in chats].count(its) == 2
    assert len(chats) == 5
    assert [above(span, spans) for span in there.named("deliver")] == [turn, telling]

    def sent_by(span: Got) -> str:
        return str(span.resource["service.name"])

    assert {sent_by(span) for span in there.named("receive", "deliver")} == {"shoal-gateway"}
    assert sent_by(turn) == sent_by(subagent) == "shoal-worker"
    assert len({first.process, turn.process, subagent.process}) == 3
    assert turn.remote_parent
    assert subagent.remote_parent
    assert not agent.remote_parent
    assert turn.attributes["shoal.outcome"] == telling.attributes["shoal.outcome"] == "done"
    used = sum(chat.attributes["gen_ai.usage.input_tokens"] for chat in chats if above(chat, spans) is agent)
    assert agent.attributes["gen_ai.usage.input_tokens"] == used > 0

    sent = b"".join(there.bodies)
    for secret in (CANARY, TOKEN, HEADER, "owner/a", "Summarise"):
        assert secret.encode() not in sent
    assert {headers["authorization"] for headers in there.headers} == {HEADER}
    lines = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    traces = [parse(line.traceparent) for line in lines if isinstance(line, OutboundMessage)]
    assert [trace and trace.trace_id for trace in traces] == [first.trace_id] * 2
    for process in (door, *fleet):
        assert HEADER not in process.log
    ended = [json.loads(line) for line in fleet[0].log.splitlines() if '"turn ended"' in line]
    assert [line["trace_id"] for line in ended] == [first.trace_id] * 2


async def test_the_successor_of_a_killed_worker_goes_on_in_the_same_trace(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, there: Collector, config: str
) -> None:
    """The span of the attempt that died is lost with its worker; the second says that it took over, and how."""
    model.script(HELD)
    env = {"SHOAL_CONFIG": config}
    fleet = [spawn("worker", MODEL__CLIENT="direct", env=env) for _ in "ab"]
    await warm(*fleet)
    came = fresh(sampled=True)
    async with watching(client, SESSION) as seen:
        await Inbox(client).ingest(replace(message("tell me"), traceparent=came.traceparent))
        await stands(seen)
        (await holder(client, SESSION)).kill()
        model.release()
        await eventually(lambda: replies(client, SESSION), within_s=LONG_S)
    await eventually(lambda: there.named("turn"), within_s=LONG_S)
    turn, chat = there.one("turn"), there.one("chat scripted")
    assert (turn.trace_id, turn.parent) == (came.trace_id, came.span_id)
    assert (turn.attributes["shoal.attempt"], turn.attributes["shoal.takeover"]) == (2, "crash")
    assert turn.attributes["shoal.outcome"] == "done"
    assert above(above(chat, there.spans), there.spans) is turn
    assert chat.events == ["first_token"]


async def test_a_turn_that_waited_for_a_person_goes_on_in_the_same_trace(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, there: Collector, config: str
) -> None:
    """Parked by one worker and gone on with by any; the question in the chat is of that trace, too."""
    model.script(
        Answer(match="^roll", role="tool", text="you got it", times=0),
        Answer(match="^roll", calls=[Call("roll_dice", '{"sides": 6}', "c1")], times=0),
    )
    _, address = await gateway(spawn, config)
    await warm(spawn("worker", MODEL__CLIENT="direct", env={"SHOAL_CONFIG": config}))
    async with connected(address, TOKEN) as page:
        await page.send("resume", chat="a", after=0)
        await page.say("a", "roll")
        asked = await received(page, "approval")
        await page.send("approve", chat="a", call=asked["call"], yes=True, digest=asked["digest"])
        await received(page, "reply", text="you got it")
    await eventually(lambda: len(there.named("turn")) == 2 and there.named("receive"), within_s=LONG_S)
    parked, done = there.named("turn")
    assert (parked.attributes["shoal.outcome"], done.attributes["shoal.outcome"]) == ("parked", "done")
    assert parked.trace_id == done.trace_id == there.one("receive").trace_id
    asking, ran = there.named("execute_tool roll_dice")
    assert (asking.attributes["shoal.ended_by"], ran.attributes["shoal.outcome"]) == ("TurnParked", "ok")
    question = next(
        line.line
        for line in await Outbox(client).read_after(SESSION, after=0)
        if isinstance(line.line, OutboundMessage) and line.line.approval is not None
    )
    found = parse(question.traceparent)
    assert found is not None
    assert (found.trace_id, found.span_id) == (asking.trace_id, asking.span_id)


async def test_a_collector_that_answers_nobody_holds_no_turn_up(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, there: Collector, config: str
) -> None:
    """Turns are answered meanwhile, and the worker ends within its time."""
    there.holding.set()
    worker = spawn("worker", MODEL__CLIENT="direct", env={"SHOAL_CONFIG": config})
    await warm(worker)
    for number in range(3):
        await Inbox(client).ingest(message("hello"))
        await eventually(lambda: _answered(client, number + 1), within_s=LONG_S)  # noqa: B023 (called at once)
    await eventually(lambda: there.paths, within_s=LONG_S)
    await Inbox(client).ingest(message("hello"))
    await eventually(lambda: _answered(client, 4), within_s=LONG_S)
    worker.terminate()
    assert worker.wait(30) == 0
    assert there.spans == []


async def test_a_turn_in_quarantine_is_in_the_trace_of_its_message(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, there: Collector, config: str
) -> None:
    """It runs in a process of its own, which sends its spans before it leaves."""
    model.script(Answer(text="fine", times=0))
    came = fresh(sampled=True)
    await Inbox(client).ingest(replace(message("tell me"), traceparent=came.traceparent))
    await client.command("HSET", keys.session(SESSION), "tries", 1, "crashes", 2)
    spawn("worker", MODEL__CLIENT="direct", env={"SHOAL_CONFIG": config})
    await eventually(lambda: len(there.named("turn")) == 2, within_s=LONG_S)
    outcomes = {span.attributes["shoal.outcome"]: span for span in there.named("turn")}
    assert set(outcomes) == {"done", "quarantine_ended"}
    assert {span.trace_id for span in there.spans} == {came.trace_id}
    assert above(there.one("invoke_agent shoal"), there.spans) is outcomes["done"]
    assert len({span.process for span in there.named("turn")}) == 2


async def _answered(client: RedisClient, many: int) -> bool:
    return len(await replies(client, SESSION)) == many
