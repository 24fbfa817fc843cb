"""A person who is asked whether a tool may run, and the workers and gateways that die meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.crash_points import VARIABLE
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import ApprovalEntry, AssistantEntry, ToolCall, ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.approvals import ApprovalAnswer, Approvals
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
TOKEN = "sesame-open-the-door"


def start(spawn: Spawn, folder: Path, **settings: str) -> Process:
    """A worker whose tool `mark` needs a yes."""
    env = {VARIABLE: str(folder / "crash"), "MARKS": str(folder), "PYTHONPATH": str(TOOLS)}
    return spawn("worker", env=env, APPROVAL__TOOLS="mark", WORKER__TURNS="1", **settings)


class Scene:
    """A worker whose tool `mark` needs a yes, and a chat that asks for it."""

    def __init__(
        self, client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, folder: Path, session: str = SESSION
    ) -> None:
        self.client, self.model, self.folder, self.session = client, model, folder, session
        self.armed = folder / "crash"
        self.approvals = Approvals(client)
        self._spawn = spawn

    async def start(self, **settings: str) -> Process:
        worker = start(self._spawn, self.folder, **settings)
        await self.begin(worker)
        return worker

    async def begin(self, worker: Process) -> None:
        """With a worker that was started before."""
        await warm(worker)
        self.model.script(
            Answer(match="go", role="tool", text="all done", times=0),
            Answer(match="go", role="user", calls=[Call("mark", '{"word": "m"}', "mark1")], times=0),
            Answer(match="other", role="user", text="the other answer", times=0),
        )

    @property
    def marks(self) -> int:
        file = self.folder / "marks"
        return len(file.read_text().splitlines()) if file.exists() else 0

    async def parked(self) -> ApprovalEntry:
        found: list[ApprovalEntry] = []

        async def waits() -> bool:
            question = await self.approvals.open_question(self.session)
            owned = await self.client.command("HEXISTS", keys.leases("turns"), keys.turn(self.session))
            found[:] = [question] if question is not None and not owned else []
            return bool(found)

        await eventually(waits, within_s=40, what="the question")
        return found[0]

    async def over(self, session: str | None = None) -> None:
        async def empty() -> bool:
            return not await self.client.command("EXISTS", keys.inbox(session or self.session))

        await eventually(empty, within_s=40, what="the answer")

    async def results(self) -> list[str]:
        return [entry.content for entry in await history(self.client, self.session) if isinstance(entry, ToolEntry)]

    async def lines(self) -> list[OutboundMessage]:
        found = [one.line for one in await Outbox(self.client).read_after(self.session, after=0)]
        return [line for line in found if isinstance(line, OutboundMessage)]


@pytest.fixture
def scene(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path) -> Scene:
    return Scene(client, spawn, model, tmp_path)


async def test_a_slot_is_free_while_a_person_thinks(scene: Scene) -> None:
    """A worker with one slot answers another chat; a no then ends the call without a trace of it."""
    await scene.start()
    await say(Inbox(scene.client), "go")
    question = await scene.parked()
    await say(Inbox(scene.client), "other", chat="owner/b")
    await scene.over("web:owner/b")
    assert await scene.approvals.open_question(SESSION) is not None
    await scene.approvals.resolve(SESSION, question.id, ApprovalAnswer(yes=False, sender="owner"), now_ms=1)
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
    await scene.approvals.resolve(SESSION, question.id, ApprovalAnswer(yes=True, sender="owner"), now_ms=1)
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
    await scene.approvals.resolve(SESSION, question.id, ApprovalAnswer(yes=True, sender="owner"), now_ms=1)
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
    await eventually(lambda: not first.alive, within_s=60, what="the end of the gateway")
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
