"""A worker killed at each step between asking a person and going on with the turn."""

from __future__ import annotations

import pytest

from proof.chaos.verdict import torn
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.approvals import ApprovalAnswer
from shared.store.turns.inbox import Inbox
from tests.crash.test_approvals import Scene, start
from tests.helpers.build import say
from tests.helpers.fleet import history
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

UNKNOWN = "outcome unknown"

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


@pytest.fixture(scope="module")
def worker(kept_fleet: KeptFleet) -> Process:
    """The guardian of all cases: it starts a worker after each death."""
    return start(kept_fleet.spawn, kept_fleet.folder)


@pytest.mark.parametrize("point", POINTS)
async def test_a_call_that_was_allowed_runs_once_or_not_at_all(
    kept_client: RedisClient, kept_fleet: KeptFleet, worker: Process, model: ScriptedOpenAI, point: str
) -> None:
    """Wherever its worker dies: it is asked once, the effect is never doubled, and an unknown outcome is told."""
    when, outcome = POINTS[point]
    chat = f"owner/{point.replace(' ', '-')}"
    scene = Scene(kept_client, kept_fleet.spawn, model, kept_fleet.folder, f"web:{chat}")
    (scene.folder / "marks").unlink(missing_ok=True)
    await scene.begin(worker)
    if when == "asking":
        scene.armed.write_text(point)
    await say(Inbox(scene.client), "go", chat=chat)
    question = await scene.parked()
    assert scene.marks == 0
    if when == "resuming":
        scene.armed.write_text(point)
    settled = await scene.approvals.resolve(
        scene.session, question.id, ApprovalAnswer(yes=True, sender="owner"), now_ms=1
    )
    assert settled == "done"
    await scene.over()
    await eventually(lambda: not scene.armed.exists(), what="the death of the worker")
    assert scene.marks == (0 if point in ("after_ledger_intent 1", "before_effect 1") else 1)
    [result] = await scene.results()
    assert result.startswith(outcome)
    assert [line.approval.state for line in await scene.lines() if line.approval] == ["open", "yes"]
    assert [line.content for line in await scene.lines() if line.kind == "reply"] == ["all done"]
    assert torn(await history(scene.client, scene.session)) == 0
    assert await scene.client.command("XLEN", keys.DEAD) == 0
