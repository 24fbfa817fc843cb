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
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"


@pytest.fixture(scope="module")
def worker(kept_fleet: KeptFleet) -> Process:
    """The guardian of all cases: it starts a worker after each death."""
    folder = kept_fleet.folder
    env = {VARIABLE: str(folder / "crash"), "MARKS": str(folder), "PYTHONPATH": str(TOOLS)}
    return kept_fleet.spawn("worker", env=env)


@pytest.mark.parametrize("point", ["before_take 1", "after_take 1", "before_ledger_reply 2", "before_commit 1"])
async def test_what_joined_a_turn_is_answered_once_whenever_its_worker_dies(
    kept_client: RedisClient, kept_fleet: KeptFleet, worker: Process, model: ScriptedOpenAI, point: str
) -> None:
    """Two follow-ups join behind a tool. The successor has them once, at the same place, and one answer names all."""
    client, armed = kept_client, kept_fleet.folder / "crash"
    chat = f"owner/{point.replace(' ', '-')}"
    session = f"web:{chat}"
    await warm(worker)
    model.script(
        Answer(match="third", role="user", text="all three", times=0),
        Answer(match="first", role="user", calls=[Call("keep", '{"word": "k"}', "keep1")], held=True, times=0),
    )
    inbox = Inbox(client, InboxLimits(busy="steer"))

    async def say(text: str) -> None:
        await inbox.ingest(message(text, chat=chat, id=text), log_line=UserLine(id=text, text=text), principal="owner")

    await say("first")
    await eventually(lambda: model.requests(), within_s=60, what="the first call")
    armed.write_text(point)
    await say("second")
    await say("third")
    model.release()

    async def over() -> bool:
        return not await client.command("EXISTS", keys.inbox(session))

    await eventually(over, within_s=40, what="the answer")
    await eventually(lambda: not armed.exists(), what="the death of the worker")
    lines = [one.line for one in await Outbox(client).read_after(session, after=0)]
    [reply] = [line for line in lines if isinstance(line, OutboundMessage)]
    assert (reply.content, reply.in_reply_to) == ("all three", ("first", "second", "third"))
    entries = await history(client, session)
    assert [entry.content for entry in entries if isinstance(entry, UserEntry)] == ["first", "second", "third"]
    assert torn(entries) == 0
    asked = [one["content"] for one in model.requests()[-1].body["messages"] if one["role"] in ("user", "tool")]
    assert [text.partition("\n")[0] for text in asked] == ["first", "kept", "second", "third"]
    assert await client.command("XLEN", keys.DEAD) == 0
