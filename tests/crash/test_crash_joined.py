"""A worker killed around the moment at which messages join its turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.verdict import torn
from shared.crash_points import VARIABLE
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from tests.helpers.build import message
from tests.helpers.fleet import history, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
SESSION = "web:owner/a"


@pytest.mark.parametrize("point", ["before_take 1", "after_take 1", "before_ledger_reply 2", "before_commit 1"])
async def test_what_joined_a_turn_is_answered_once_whenever_its_worker_dies(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, point: str
) -> None:
    """Two follow-ups join behind a tool. The successor has them once, at the same place, and one answer names all."""
    armed = tmp_path / "crash"
    worker = spawn(
        "worker", env={VARIABLE: str(armed), "MARKS": str(tmp_path), "PYTHONPATH": str(TOOLS)}, MODEL__CLIENT="direct"
    )
    await warm(worker)
    model.script(
        Answer(match="third", role="user", text="all three", times=0),
        Answer(match="first", role="user", calls=[Call("keep", '{"word": "k"}', "keep1")], first_s=3.0, times=0),
    )
    inbox = Inbox(client, InboxLimits(busy="steer"))

    async def say(text: str) -> None:
        await inbox.ingest(message(text, id=text), log_line=UserLine(id=text, text=text), principal="owner")

    await say("first")
    await eventually(lambda: model.requests(), within_s=20, what="the first call")
    armed.write_text(point)
    await say("second")
    await say("third")

    async def over() -> bool:
        return not await client.command("EXISTS", keys.inbox(SESSION))

    await eventually(over, within_s=40, what="the answer")
    assert not armed.exists(), "the worker was killed"
    lines = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    [reply] = [line for line in lines if isinstance(line, OutboundMessage)]
    assert (reply.content, reply.in_reply_to) == ("all three", ("first", "second", "third"))
    entries = await history(client, SESSION)
    assert [entry.content for entry in entries if isinstance(entry, UserEntry)] == ["first", "second", "third"]
    assert torn(entries) == 0
    asked = [one["content"] for one in model.requests()[-1].body["messages"] if one["role"] in ("user", "tool")]
    assert [text.partition("\n")[0] for text in asked] == ["first", "kept", "second", "third"]
    assert await client.command("XLEN", keys.DEAD) == 0
