"""Records that another version wrote are read by this one, from bytes that were frozen when they were written."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from shared.ids import nonce
from shared.messages.inbound import decode_inbound
from shared.messages.live import TurnEvent, decode_live
from shared.messages.outbound import OutboundMessage, decode_answer
from shared.messages.subagent import decode_task
from shared.messages.transcript import decode_ledger, decode_transcript
from shared.store import keys
from shared.store.access.pairing import decode_person
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox, read_line
from shared.store.fleet.presence import Presence, list_processes
from shared.store.sessions.backup import SessionFile
from shared.store.sessions.session import Sessions
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply
from tests.records import frozen_records, samples, shape

READERS: dict[str, Any] = {
    "inbound": decode_inbound,
    "line": read_line,
    "transcript": decode_transcript,
    "ledger": decode_ledger,
    "live": decode_live,
    "presence": msgspec.json.Decoder(Presence).decode,
    "session": msgspec.json.Decoder(SessionFile).decode,
    "subagent": decode_task,
    "step": decode_ledger,
    "person": decode_person,
    "answer": decode_answer,
}
HOW = "look at it, then run `python -m tests.records.freeze` and commit what it changes"


@pytest.mark.parametrize("meaning", samples.records())
def test_what_is_written_now_is_what_was_frozen(meaning: str) -> None:
    """Byte for byte: a record that changes is noticed here, and its old bytes are in the history of the file."""
    now = samples.records()[meaning]
    assert frozen_records.records().get(meaning) == now, f"{meaning!r} is written differently: {HOW}"


@pytest.mark.parametrize("meaning", frozen_records.records())
def test_this_version_reads_what_was_frozen(meaning: str) -> None:
    """Every value comes back as it was meant: read, and written again, it is the same record."""
    kind, data = frozen_records.records()[meaning]
    read = READERS[kind](data)
    json = kind in ("live", "presence", "session")
    assert (msgspec.json if json else msgspec.msgpack).encode(read) == data


@pytest.mark.parametrize("meaning", frozen_records.records())
def test_a_field_of_a_later_version_is_ignored(meaning: str) -> None:
    """Fields may be added at any time. The file of an exported session has a version number instead."""
    kind, data = frozen_records.records()[meaning]
    if kind == "session":
        with pytest.raises(msgspec.ValidationError, match="future"):
            READERS[kind](data[:-1] + b',"future":1}')
        return
    module: Any = msgspec.json if kind in ("live", "presence") else msgspec.msgpack
    longer = module.encode(module.decode(data) | {"future": [1, {"a": "b"}]})
    assert READERS[kind](longer) == READERS[kind](data)


def test_no_record_lost_what_others_rely_on() -> None:
    """Fields are only added, with a default; tags stay."""
    assert shape.broken(frozen_records.read("shapes"), shape.shapes()) == []


def test_what_was_added_is_frozen() -> None:
    """The next version is then compared with this one."""
    changed = shape.changed(frozen_records.read("shapes"), shape.shapes())
    assert changed == [], f"allowed, if older versions can ignore it; {HOW}"


def without(now: dict[str, Any]) -> None:
    del now["ToolEntry"]["fields"]["ok"]


def renamed(now: dict[str, Any]) -> None:
    fields = now["UserEntry"]["fields"]
    fields["text"] = fields.pop("content")


def demanding(now: dict[str, Any]) -> None:
    now["InboundMessage"]["fields"]["tenant"] = {"required": True, "type": "str"}


def stricter(now: dict[str, Any]) -> None:
    now["Presence"]["fields"]["slots"]["required"] = True


def retagged(now: dict[str, Any]) -> None:
    now["UserLine"]["tag"] = ["t", "user_said"]


def gone(now: dict[str, Any]) -> None:
    del now["IntentEntry"]


@pytest.mark.parametrize("change", [without, renamed, demanding, stricter, retagged, gone])
def test_each_change_that_breaks_is_found(change: Any) -> None:
    """A check that could not fail would be none."""
    now = copy.deepcopy(shape.shapes())
    change(now)
    assert shape.broken(shape.shapes(), now)


def test_an_optional_field_breaks_nothing_and_asks_to_be_frozen() -> None:
    """The one change that is allowed."""
    now = copy.deepcopy(shape.shapes())
    now["ToolCall"]["fields"]["index"] = {"required": False, "type": "int"}
    assert shape.broken(shape.shapes(), now) == []
    assert shape.changed(shape.shapes(), now) == ["ToolCall.index is new"]


async def test_a_store_that_another_version_left_is_continued(client: RedisClient) -> None:
    """A turn in its middle, counters, waiting messages, a log, a dead letter, a job, a presence: all are understood."""
    await frozen_records.restore(client, frozen_records.read("store"))
    quiet, running = await Sessions(client).state(samples.QUIET), await Sessions(client).state(samples.RUNNING)
    assert (quiet.counter, quiet.waiting, quiet.entries) == (2, (), 2)
    assert (running.counter, running.waiting, running.turn, running.running) == (3, ("r1", "r2", "r3"), 1, True)

    worker = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await worker.acquire(5)
    assert claim.turn is not None
    assert (claim.session, claim.owner_lost) == (samples.RUNNING, True)
    assert (claim.turn.n, claim.turn.errors, claim.turn.crashes, claim.turn.attempt) == (1, 1, 1, 3)
    steps = [samples.ASKED, samples.INTENT, samples.RESULT]
    assert [decode_ledger(step) for step in claim.turn.ledger] == steps
    assert decode_inbound(claim.turn.record).content == "6*7"
    assert (claim.turn.scope, claim.turn.memory, claim.turn.preset) == (f"chat:{samples.RUNNING}", "", "")

    done = await Turns(client).commit(claim, history=[], lines=[reply("42", 1)], event=TurnEvent(1, "done"))
    assert done.first
    for n in (2, 3):
        [claim] = await worker.acquire(5)
        assert claim.turn is not None
        assert (claim.turn.n, claim.turn.errors, claim.turn.crashes, claim.turn.attempt) == (n, 0, 0, 1)
        await Turns(client).commit(claim, history=[], lines=[reply("x", n)], event=TurnEvent(n, "done"))
    lines = [one.line for one in await Outbox(client).read_after(samples.RUNNING, after=0)]
    assert [line.turn for line in lines if isinstance(line, OutboundMessage)] == [1, 2, 3]

    [letter] = [one async for one in DeadLetters(client, Inbox(client)).all()]
    assert (letter.reason, letter.session, letter.turn) == ("crashes", samples.QUIET, 2)
    assert (await DeadLetters(client, Inbox(client)).replay(letter)) is not None
    assert await list_processes(client) == [samples.PRESENCE]
    assert await client.command("ZCARD", keys.queue("jobs")) == 1
