"""A worker killed around what the message tool says."""

from __future__ import annotations

import json
from functools import partial

import pytest

from shared.crash_points import VARIABLE
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually


@pytest.fixture(scope="module")
def worker(kept_fleet: KeptFleet) -> Process:
    """The guardian of all cases: it starts a worker after each death."""
    env = {VARIABLE: str(kept_fleet.folder / "crash")}
    return kept_fleet.spawn("worker", env=env, MEDIA__DIR=str(kept_fleet.folder / "media"))


@pytest.mark.parametrize(
    "point",
    ["before_ledger_effect", "after_ledger_effect", "before_ledger_result", "after_ledger_result", "before_commit"],
)
async def test_a_worker_killed_around_what_it_says_says_it_once(
    kept_client: RedisClient, kept_fleet: KeptFleet, worker: Process, model: ScriptedOpenAI, point: str
) -> None:
    """SIGKILL: one line in each chat, one reply without a word that ends the turn, and history there knows it once."""
    client, armed = kept_client, kept_fleet.folder / "crash"
    here, there = f"{point}-here", f"{point}-there"
    await warm(worker)
    model.script(Answer(text="yes?"))
    await say(Inbox(client), "open", chat=f"owner/{there}")
    await eventually(partial(_answered, client, f"web:owner/{there}", 1), within_s=60)
    result = [
        Call("message", json.dumps({"text": "to you"}), "m1"),
        Call("message", json.dumps({"text": "to the other", "chat": there}), "m2"),
    ]
    model.script(Answer(role="tool", text="All told.", times=0), Answer(role="user", calls=result, times=0))
    armed.write_text(f"{point} 1")
    await say(Inbox(client), "tell both", chat=f"owner/{here}", id=f"{point}-x1")
    await eventually(partial(_answered, client, f"web:owner/{here}", 1), within_s=60)
    await eventually(lambda: not armed.exists(), what="the death of the worker")
    those_here, those_there = [await _lines(client, f"web:owner/{chat}") for chat in (here, there)]
    assert [(line.content, line.sent_by_tool, line.in_reply_to) for line in those_here] == [
        ("to you", True, ()),
        ("", False, (f"{point}-x1",)),
    ]
    assert [line.content for line in those_there] == ["yes?", "to the other"]
    stored = await client.command("LRANGE", keys.history(f"web:owner/{there}"), 0, -1)
    assert sum(b"to the other" in entry for entry in stored) == 1


async def _lines(client: RedisClient, session: str) -> list[OutboundMessage]:
    found = await Outbox(client).read_after(session, after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def _answered(client: RedisClient, session: str, many: int) -> bool:
    ended = [line for line in await _lines(client, session) if line.in_reply_to]
    return len(ended) == many and await client.command("EXISTS", keys.inbox(session), keys.ledger(session)) == 0
