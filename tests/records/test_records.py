"""Records of one release read by another, in both directions, from bytes that were frozen when they were written."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from shared.ids import nonce
from shared.messages.answer import decode_answer
from shared.messages.inbound import decode_inbound
from shared.messages.live import TurnEvent, decode_live
from shared.messages.outbound import OutboundMessage
from shared.messages.subagent import decode_task
from shared.messages.transcript import decode_ledger, decode_transcript
from shared.store import keys
from shared.store.access.pairing import decode_person
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox, read_line
from shared.store.fleet.presence import Presence, present
from shared.store.sessions.backup import SessionFile
from shared.store.sessions.session import Sessions
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import reply
from tests.records import frozen, samples, shape
from tests.records.release_1 import shapes as release_1

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
NEW_KINDS = ("session", "subagent", "step", "person", "answer")
"""Kinds of records that release 1 has not; a `step` is one of a ledger, which release 1 leaves to others."""

SINCE_RELEASE_1 = {
    "Numbered", "SessionFile", "Schedule", "At", "Every", "Cron", "SubagentTask", "EffectEntry", "TakenEntry",
    "ApprovalEntry", "DecisionEntry", "JoinedEvent", "Vitals", "Person", "TokensUsed", "StoredAnswer", "RequestFailed",
}  # fmt: skip

WRITTEN = [(release, meaning) for release in frozen.RELEASES for meaning in frozen.records(release)]
HOW = "look at it, then run `python -m tests.records.freeze` and commit what it changes"


@pytest.mark.parametrize("meaning", samples.records() | samples.newer())
def test_what_is_written_now_is_what_was_frozen(meaning: str) -> None:
    """Byte for byte: a record that changes is noticed here, and its old bytes are in the history of the file."""
    now = (samples.records() | samples.newer())[meaning]
    assert frozen.records("now").get(meaning) == now, f"{meaning!r} is written differently: {HOW}"


@pytest.mark.parametrize(("release", "meaning"), WRITTEN)
def test_this_release_reads_what_was_frozen(release: str, meaning: str) -> None:
    """Every value comes back as it was meant: read, and written again, it is the same record."""
    kind, data = frozen.records(release)[meaning]
    read = READERS[kind](data)
    json = kind in ("live", "presence", "session")
    assert (msgspec.json if json else msgspec.msgpack).encode(read) == data
    assert frozen.records("now")[meaning][1] == data, "both releases write it alike"


@pytest.mark.parametrize(("release", "meaning"), WRITTEN)
def test_a_field_of_a_release_to_come_is_passed_over(release: str, meaning: str) -> None:
    """By this release and by release 1. The file of a session has a version instead."""
    kind, data = frozen.records(release)[meaning]
    if kind == "session":
        with pytest.raises(msgspec.ValidationError, match="future"):
            READERS[kind](data[:-1] + b',"future":1}')
        return
    module: Any = msgspec.json if kind in ("live", "presence") else msgspec.msgpack
    longer = module.encode(module.decode(data) | {"future": [1, {"a": "b"}]})
    assert READERS[kind](longer) == READERS[kind](data)
    if kind not in NEW_KINDS:
        assert release_1.read(kind, longer) == release_1.read(kind, data)


@pytest.mark.parametrize(
    "meaning", [name for name, (kind, _) in frozen.records("now").items() if kind not in NEW_KINDS]
)
def test_release_1_reads_what_this_release_writes(meaning: str) -> None:
    """With the same values; the answer of a command, which it does not know, is shown as a notice."""
    kind, data = frozen.records("now")[meaning]
    theirs, ours = release_1.read(kind, data), READERS[kind](data)
    if meaning == "the answer of a command":
        assert (theirs.kind, theirs.turn) == ("notice", 0)
        return
    told = msgspec.to_builtins(ours)
    assert {name: told[name] for name in msgspec.to_builtins(theirs)} == msgspec.to_builtins(theirs)
    assert type(theirs).__name__ == type(ours).__name__


def test_no_record_lost_what_others_rely_on() -> None:
    """Fields are only added, with a default; tags stay."""
    assert shape.broken(frozen.read("now", "shapes"), shape.shapes()) == []
    copies = {name: shape.shape(kind) for name, kind in vars(release_1).items() if _is_record(kind)}
    assert shape.broken(copies, shape.shapes()) == [], "compared with release 1"
    assert {record.__name__ for record in shape.RECORDS} - set(copies) == SINCE_RELEASE_1


def test_what_was_added_is_frozen() -> None:
    """So that the next release is compared with this one."""
    changed = shape.changed(frozen.read("now", "shapes"), shape.shapes())
    assert changed == [], f"allowed, if older releases read it harmlessly; {HOW}"


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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
    now["SaidLine"]["tag"] = ["t", "user_said"]


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


@pytest.mark.parametrize("release", frozen.RELEASES)
async def test_a_store_that_another_release_left_is_gone_on_with(client: RedisClient, release: str) -> None:
    """A turn in its middle, counters, waiting messages, a log, a dead letter, a job, a presence: all are understood."""
    await frozen.put(client, frozen.read(release, "store"))
    quiet, running = await Sessions(client).state(samples.QUIET), await Sessions(client).state(samples.RUNNING)
    assert (quiet.counter, quiet.waiting, quiet.entries) == (2, (), 2)
    assert (running.counter, running.waiting, running.turn, running.running) == (3, ("r1", "r2", "r3"), 1, True)

    worker = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await worker.acquire(5)
    assert claim.turn is not None
    assert (claim.session, claim.taken_over) == (samples.RUNNING, True)
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
    lines = [one.line for one in await Outbox(client).read(samples.RUNNING, after=0)]
    assert [line.turn for line in lines if isinstance(line, OutboundMessage)] == [1, 2, 3]

    [letter] = [one async for one in DeadLetters(client, Inbox(client)).all()]
    assert (letter.reason, letter.session, letter.turn) == ("crashes", samples.QUIET, 2)
    assert (await DeadLetters(client, Inbox(client)).replay(letter)) is not None
    assert await present(client) == [samples.PRESENCE]
    assert await client.command("ZCARD", keys.queue("jobs")) == 1
