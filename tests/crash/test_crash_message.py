"""A worker killed around what the message tool says."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from shared.crash_points import VARIABLE
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

HERE, THERE = "web:owner/here", "web:owner/there"


@pytest.mark.parametrize(
    "point",
    ["before_ledger_effect", "after_ledger_effect", "before_ledger_result", "after_ledger_result", "before_commit"],
)
async def test_a_worker_killed_around_what_it_says_says_it_once(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, point: str
) -> None:
    """SIGKILL: one line in each chat, one reply without a word that ends the turn, and history there knows it once."""
    armed = tmp_path / "crash"
    worker = spawn(
        "worker", env={VARIABLE: str(armed)}, MODEL__CLIENT="direct", MEDIA__DIR=str(tmp_path / "media"),
    )  # fmt: skip
    await warm(worker)
    model.script(Answer(text="yes?"))
    await say(Inbox(client), "open", chat="owner/there")
    await eventually(partial(_answered, client, THERE, 1), within_s=20)
    result = [
        Call("message", json.dumps({"text": "to you"}), "m1"),
        Call("message", json.dumps({"text": "to the other", "chat": "there"}), "m2"),
    ]
    model.script(Answer(role="tool", text="All told.", times=0), Answer(role="user", calls=result, times=0))
    armed.write_text(f"{point} 1")
    await say(Inbox(client), "tell both", chat="owner/here", id="x1")
    await eventually(partial(_answered, client, HERE, 1), within_s=20)
    assert not armed.exists(), "the worker was killed"
    here, there = [await _lines(client, session) for session in (HERE, THERE)]
    assert [(line.content, line.sent_by_tool, line.in_reply_to) for line in here] == [
        ("to you", True, ()),
        ("", False, ("x1",)),
    ]
    assert [line.content for line in there] == ["yes?", "to the other"]
    stored = await client.command("LRANGE", keys.history(THERE), 0, -1)
    assert sum(b"to the other" in entry for entry in stored) == 1


async def _lines(client: RedisClient, session: str) -> list[OutboundMessage]:
    found = await Outbox(client).read_after(session, after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def _answered(client: RedisClient, session: str, many: int) -> bool:
    ended = [line for line in await _lines(client, session) if line.in_reply_to]
    return len(ended) == many and await client.command("EXISTS", keys.inbox(session), keys.ledger(session)) == 0
