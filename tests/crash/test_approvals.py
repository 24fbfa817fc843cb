"""A worker killed at each step between asking a person and going on with the turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.verdict import torn
from shared.crash_points import VARIABLE
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import ApprovalEntry, AssistantEntry, ToolCall, ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.approvals import Approvals
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import answers, free_port
from tests.gateway.harness import client as client_of
from tests.helpers.build import say
from tests.helpers.fleet import history, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
SESSION = "web:owner/a"
UNKNOWN = "outcome unknown"
TOKEN = "sesame-open-the-door"

POINTS = {
    "before_park 1": ("asking", "marked"),
    "after_park 1": ("asking", "marked"),
    "after_acquire 1": ("resuming", "marked"),
    "before_ledger_intent 1": ("resuming", "marked"),
    "after_ledger_intent 1": ("resuming", UNKNOWN),
    "before_effect 1": ("resuming", UNKNOWN),
    "after_effect 1": ("resuming", UNKNOWN),
    "before_ledger_result 1": ("resuming", UNKNOWN),
    "after_ledger_result 1": ("resuming", "marked"),
    "before_commit 1": ("resuming", "marked"),
}
"""When the worker dies there, and what the model is told of the call in the end."""


class Scene:
    """A worker whose tool `mark` needs a yes, and a chat that asks for it."""

    def __init__(self, client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, folder: Path) -> None:
        self.client, self.model, self.folder = client, model, folder
        self.armed = folder / "crash"
        self.approvals = Approvals(client)
        self._spawn = spawn

    async def start(self, **settings: str) -> Process:
        env = {VARIABLE: str(self.armed), "MARKS": str(self.folder), "PYTHONPATH": str(TOOLS)}
        worker = self._spawn(
            "worker", env=env, MODEL__CLIENT="direct", APPROVAL__TOOLS="mark", WORKER__TURNS="1", **settings
        )
        await warm(worker)
        self.model.script(
            Answer(match="go", role="tool", text="all done", times=0),
            Answer(match="go", role="user", calls=[Call("mark", '{"word": "m"}', "mark1")], times=0),
            Answer(match="other", role="user", text="the other answer", times=0),
        )
        return worker

    @property
    def marks(self) -> int:
        file = self.folder / "marks"
        return len(file.read_text().splitlines()) if file.exists() else 0

    async def parked(self) -> ApprovalEntry:
        found: list[ApprovalEntry] = []

        async def waits() -> bool:
            question = await self.approvals.open_question(SESSION)
            owned = await self.client.command("HEXISTS", keys.leases("turns"), keys.turn(SESSION))
            found[:] = [question] if question is not None and not owned else []
            return bool(found)

        await eventually(waits, within_s=40, what="the question")
        return found[0]

    async def over(self, session: str = SESSION) -> None:
        async def empty() -> bool:
            return not await self.client.command("EXISTS", keys.inbox(session))

        await eventually(empty, within_s=40, what="the answer")

    async def results(self) -> list[str]:
        return [entry.content for entry in await history(self.client, SESSION) if isinstance(entry, ToolEntry)]

    async def lines(self) -> list[OutboundMessage]:
        found = [one.line for one in await Outbox(self.client).read_after(SESSION, after=0)]
        return [line for line in found if isinstance(line, OutboundMessage)]


@pytest.fixture
def scene(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path) -> Scene:
    return Scene(client, spawn, model, tmp_path)


@pytest.mark.parametrize("point", POINTS)
async def test_a_call_that_was_allowed_runs_once_or_not_at_all(scene: Scene, point: str) -> None:
    """Wherever its worker dies: it is asked once, the effect is never doubled, and an unknown outcome is told."""
    when, outcome = POINTS[point]
    await scene.start()
    if when == "asking":
        scene.armed.write_text(point)
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    assert scene.marks == 0
    if when == "resuming":
        scene.armed.write_text(point)
    settled = await scene.approvals.resolve(SESSION, question.id, yes=True, sender="owner", now_ms=1)
    assert settled == "done"
    await scene.over()
    assert not scene.armed.exists(), "the worker was killed"
    assert scene.marks == (0 if point in ("after_ledger_intent 1", "before_effect 1") else 1)
    [result] = await scene.results()
    assert result.startswith(outcome)
    assert [line.approval.state for line in await scene.lines() if line.approval] == ["open", "yes"]
    assert [line.content for line in await scene.lines() if line.kind == "reply"] == ["all done"]
    assert torn(await history(scene.client, SESSION)) == 0
    assert await scene.client.command("XLEN", keys.DEAD) == 0


async def test_a_slot_is_free_while_a_person_thinks(scene: Scene) -> None:
    """A worker with one slot answers another chat; a no then ends the call without a trace of it."""
    await scene.start()
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    await say(Inbox(scene.client), "other", chat="owner/b")
    await scene.over("web:owner/b")
    assert await scene.approvals.open_question(SESSION) is not None
    await scene.approvals.resolve(SESSION, question.id, yes=False, sender="owner", now_ms=1)
    await scene.over()
    assert scene.marks == 0
    [result] = await scene.results()
    assert "the user said no" in result


async def test_without_an_answer_the_call_does_not_run(scene: Scene) -> None:
    """The turn goes on by itself when the time is over."""
    await scene.start(APPROVAL__WAIT_S="1")
    await say(Inbox(scene.client), "go")
    await scene.over()
    assert scene.marks == 0
    [result] = await scene.results()
    assert "nobody answered within" in result
    assert [line.approval.state for line in await scene.lines() if line.approval] == ["open"]


async def test_a_worker_killed_while_a_person_thinks_is_not_missed(scene: Scene) -> None:
    """Another one goes on with the turn; no model call is made again."""
    first = await scene.start()
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    first.kill_group()
    asked = len(scene.model.requests())
    await scene.start()
    await scene.approvals.resolve(SESSION, question.id, yes=True, sender="owner", now_ms=1)
    await scene.over()
    assert scene.marks == 1
    assert await scene.results() == ["marked"]
    assert len(scene.model.requests()) == asked + 1


async def test_what_was_changed_behind_a_yes_does_not_run(scene: Scene) -> None:
    """The arguments that run are those that were shown: here somebody writes others into the ledger meanwhile."""
    await scene.start()
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    ledger = keys.ledger(SESSION)
    [_, (_, asked)] = await scene.client.command("XRANGE", ledger, "-", "+")
    other = AssistantEntry(content=None, turn=1, tool_calls=(ToolCall("mark1", "mark", '{"word": "other"}'),))
    await scene.client.command("DEL", ledger)
    await scene.client.command("XADD", ledger, "1-0", "m", encode(other))
    await scene.client.command("XADD", ledger, "2-0", *asked)
    await scene.approvals.resolve(SESSION, question.id, yes=True, sender="owner", now_ms=1)
    await scene.over()
    assert scene.marks == 0
    [result] = await scene.results()
    assert "not those that the user said yes to" in result


@pytest.mark.parametrize("point", ["before_approve 1", "after_approve 1"])
async def test_a_gateway_killed_with_an_answer_in_its_hands_loses_and_doubles_nothing(
    scene: Scene, spawn: Spawn, point: str
) -> None:
    """Whoever answers again is told that it was answered, or is the one; the call runs once."""
    await scene.start()
    port = free_port()
    first = spawn("gateway", env={VARIABLE: str(scene.armed)}, WEB__PORT=str(port), WEB__TOKEN=TOKEN)
    await eventually(lambda: answers(f"127.0.0.1:{port}"), within_s=30, what="the gateway")
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    scene.armed.write_text(point)
    async with client_of(f"127.0.0.1:{port}", token=TOKEN) as page:
        await page.send("approve", chat="a", call=question.id, yes=True, digest=question.digest)
        await page.closed()
    await eventually(lambda: not first.alive, within_s=20, what="the end of the gateway")
    port = free_port()
    spawn("gateway", WEB__PORT=str(port), WEB__TOKEN=TOKEN)
    await eventually(lambda: answers(f"127.0.0.1:{port}"), within_s=30, what="the gateway")
    async with client_of(f"127.0.0.1:{port}", token=TOKEN) as page:
        await page.send("approve", chat="a", call=question.id, yes=True, digest=question.digest)
        if point == "after_approve 1":
            assert (await page.next("error"))["code"] == "approval_used"
        else:
            await scene.over()
    await scene.over()
    assert scene.marks == 1
    assert [line.approval.state for line in await scene.lines() if line.approval] == ["open", "yes"]
