"""A worker killed at each point between the spawn of a subagent and the answer to its report."""

from __future__ import annotations

import pytest

from shared.crash_points import VARIABLE
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from tests.crash.test_subagents import asked, quiet, reported
from tests.helpers.build import say
from tests.helpers.fleet import replies, warm
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

POINTS = (
    "before_ledger_intent", "after_ledger_intent", "before_ledger_effect", "after_ledger_effect",
    "before_ledger_result", "after_ledger_result", "before_commit", "after_commit", "after_acquire_child",
    "before_child_end", "after_child_end",
)  # fmt: skip


@pytest.fixture(scope="module")
def worker(kept_fleet: KeptFleet) -> Process:
    """The guardian of all cases: it starts a worker after each death."""
    return kept_fleet.spawn("worker", env={VARIABLE: str(kept_fleet.folder / "crash")})


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_between_spawn_and_report_loses_and_doubles_no_result(
    kept_client: RedisClient, kept_fleet: KeptFleet, worker: Process, model: ScriptedOpenAI, point: str
) -> None:
    """One subagent, one report, one answer to it, and nothing left behind."""
    client, armed = kept_client, kept_fleet.folder / "crash"
    chat, session = f"owner/{point}", f"web:owner/{point}"
    model.script(
        Answer(match=r"^\[Subagent", text="it found gold", times=0),
        Answer(match="^dig", role="tool", text="gold", times=0),
        Answer(match="^dig", calls=[Call("current_time", "{}", "time")], times=0),
        Answer(match="^please", role="tool", text="started", times=0),
        Answer(match="^please", calls=asked("dig"), times=0),
    )
    await warm(worker)
    armed.write_text(f"{point} 1")
    await say(Inbox(client), "please", chat=chat)
    await eventually(lambda: quiet(client, session), within_s=40)
    await eventually(lambda: not armed.exists(), what="the death of the worker")
    assert await replies(client, session) == ["started", "it found gold"]
    assert len(await reported(client, session)) == 1
    [child] = await Subagents(client).of_session(session)
    assert (child.state, child.result) == ("ok", "gold")
    assert await client.command("XLEN", keys.DEAD) == 0
