"""A worker killed at each named point of a turn, in the first, the middle and the last of three messages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.crash_points import VARIABLE
from shared.messages.transcript import ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, replies, warm
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
MESSAGES = (1, 2, 3)


class Expected(NamedTuple):
    """What a crash at a point costs: model calls made again, and whether the unsafe tool's effect is there and known.

    `passes` is how often a turn passes the point.
    """

    passes: int = 1
    calls_again: int = 0
    marked: bool = True
    known: bool = True


POINTS = {
    "after_acquire": Expected(),
    "before_ledger_reply": Expected(calls_again=1),
    "after_ledger_reply": Expected(),
    "before_ledger_intent": Expected(passes=2),
    "after_ledger_intent": Expected(passes=2, marked=False, known=False),
    "before_effect": Expected(marked=False, known=False),
    "after_effect": Expected(known=False),
    "before_ledger_result": Expected(passes=2, known=False),
    "after_ledger_result": Expected(passes=2),
    "after_agent": Expected(calls_again=1),
    "before_commit": Expected(calls_again=1),
    "after_commit": Expected(),
}


def script(model: ScriptedOpenAI) -> None:
    """Each message leads to one unsafe call, one idempotent call, and an answer."""
    answers = []
    for number in MESSAGES:
        message = f"message {number}"
        calls = [Call("mark", f'{{"word": "m{number}"}}', f"mark{number}"), Call("keep", f'{{"word": "k{number}"}}')]
        answers.append(Answer(match=message, role="tool", text=f"answer {number}", times=0))
        answers.append(Answer(match=message, role="user", calls=calls, times=0))
    model.script(*answers)


@pytest.fixture(scope="module")
def worker(kept_fleet: KeptFleet) -> Process:
    """The guardian of all cases: it starts a worker after each death."""
    folder = kept_fleet.folder
    env = {VARIABLE: str(folder / "crash"), "MARKS": str(folder), "PYTHONPATH": str(TOOLS)}
    return kept_fleet.spawn("worker", env=env)


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_at_a_point_of_a_turn_loses_and_doubles_nothing(
    kept_client: RedisClient, kept_fleet: KeptFleet, worker: Process, model: ScriptedOpenAI, point: str
) -> None:
    """Every message is answered once and in order, nothing is left behind, no unsafe tool runs twice, no finished model
    call is made again, and the model is told when an outcome is unknown."""
    client, folder = kept_client, kept_fleet.folder
    expected, armed = POINTS[point], folder / "crash"
    await warm(worker)
    for number in MESSAGES:
        (folder / f"kept-k{number}").unlink(missing_ok=True)
    for hit in MESSAGES:
        model.reset()
        script(model)
        (folder / "marks").unlink(missing_ok=True)
        armed.write_text(f"{point} {(hit - 1) * expected.passes + 1}")
        chat, session = f"owner/{point}{hit}", f"web:owner/{point}{hit}"
        inbox = Inbox(client)
        for number in MESSAGES:
            await say(inbox, f"message {number}", chat=chat, id=f"{point}-{hit}-{number}")
        await eventually(partial(_quiet, client, session), within_s=60, what=f"the answers with a crash in {hit}")
        await eventually(lambda: not armed.exists(), what="the death of the worker")
        assert await replies(client, session) == [f"answer {number}" for number in MESSAGES]
        marks = (folder / "marks").read_text().split() if (folder / "marks").exists() else []
        assert marks == [f"m{number}" for number in MESSAGES if number != hit or expected.marked]
        result = {e.call_id: e.content for e in await history(client, session) if isinstance(e, ToolEntry)}
        unknown = [call for call, content in result.items() if "outcome unknown" in content]
        assert unknown == ([] if expected.known else [f"mark{hit}"])
        assert len(model.requests()) == 2 * len(MESSAGES) + expected.calls_again
    assert all((folder / f"kept-k{number}").exists() for number in MESSAGES)
    assert await client.command("XLEN", keys.DEAD) == 0


async def _quiet(client: RedisClient, session: str) -> bool:
    waiting = await client.command("EXISTS", keys.inbox(session), keys.ledger(session))
    lease = await client.command("HEXISTS", keys.leases("turns"), keys.turn(session))
    return waiting == 0 and lease == 0 and len(await replies(client, session)) == len(MESSAGES)
