"""Samples of everything that is written: one record of every kind and shape, and a store in the middle of its work."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.messages.codec import encode
from shared.messages.inbound import ClientTool, InboundMessage, TurnOptions
from shared.messages.live import DeltaEvent, ProgressEvent, Takeover, TurnEvent, encode_live
from shared.messages.outbound import OutboundMessage, RequestFailed, StoredAnswer, TokensUsed, UserLine, WaitingCalls
from shared.messages.schedule import AtPlan, CronPlan, EveryPlan, Plan, Schedule
from shared.messages.subagent import SubagentTask, report
from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    CallsEntry,
    DecisionEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    LedgerEntry,
    ToolCall,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)
from shared.store import keys
from shared.store.access.pairing import PairedPerson
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, ProcessStats, announce
from shared.store.jobs.jobs import Jobs
from shared.store.sessions.backup import Numbered, SessionFile
from shared.store.turns.approvals import ApprovalAnswer, question_line, resolution_line
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, Turns

AT: Final = 1_700_000_000_000
OWNER: Final = "0123456789abcdef0123456789abcdef"
RUNNING, QUIET = "web:owner/running", "web:owner/quiet"
CALLS: Final = (ToolCall("c1", "calculate", '{"expression": "6*7"}'), ToolCall("c2", "exec", "{"))
TRACE: Final = f"00-{'1' * 32}-{'2' * 16}-01"
ASKED: Final = AssistantEntry(content=None, turn=1, tool_calls=CALLS, reasoning="six times seven", at=AT)
INTENT: Final = IntentEntry(call_id="c1", turn=1, at=AT)
RESULT: Final = ToolEntry(call_id="c1", name="calculate", content="42", turn=1, ok=False, at=AT)
PRESENCE: Final = Presence(
    kind="worker", name="w1", host="here", pid=7, started_at=AT, version="0.1.0", running=1, slots=100, draining=True,
    details={"model": "demo"},
)  # fmt: skip


WISHES = TurnOptions(max_tokens=100, temperature=0.0, stop=("END",), schema='{"type":"object"}', system="be brief")


def message(chat: str, id: str, content: str) -> InboundMessage:
    return InboundMessage(
        channel="web", chat_id=f"owner/{chat}", sender_id="owner", id=id, content=content, timestamp=AT
    )


def records() -> dict[str, tuple[str, bytes]]:
    """Return kind and bytes of every sample, by its meaning."""
    return _everyday() | _others()


def _everyday() -> dict[str, tuple[str, bytes]]:
    small = message("a", "m1", "Grüße 👋")
    full = msgspec.structs.replace(
        small, media=("file:1",), metadata={"group": "1"}, thread="t1", traceparent=f"00-{'1' * 32}-{'2' * 16}-01"
    )
    line = OutboundMessage(content="42", turn=1)
    whole = OutboundMessage(
        content="42", turn=1, in_reply_to=("m1", "m2"), kind="apology", media=("file:2",), reply_to="m1",
        buttons=("yes", "no"), at=AT,
    )  # fmt: skip
    return {
        "a message with what every message has": ("inbound", encode(small)),
        "a message with all there can be": ("inbound", encode(full)),
        "a message of a program with wishes": ("inbound", encode(msgspec.structs.replace(small, options=WISHES))),
        "a reply with what every reply has": ("line", encode(line)),
        "an apology with all there can be": ("line", encode(whole)),
        "the reply of a stopped turn": ("line", encode(OutboundMessage(content="4", turn=1, kind="stopped"))),
        "a notice": ("line", encode(OutboundMessage(content="slowly", turn=0, kind="notice"))),
        "what a person said, as a line": ("line", encode(UserLine(id="m1", text="Grüße", at=AT))),
        "what a person said, for the model": (
            "transcript",
            encode(UserEntry(content="hi", turn=1, at=AT, sender_id="o")),
        ),
        "what the model said": ("transcript", encode(AssistantEntry(content="42", turn=1))),
        "a model's wish to use tools": ("ledger", encode(ASKED)),
        "a tool is about to run": ("ledger", encode(INTENT)),
        "what a tool answered": ("ledger", encode(RESULT)),
        "a turn began": ("live", encode_live(TurnEvent(1, "started", 2))),
        "a turn failed": ("live", encode_live(TurnEvent(1, "failed"))),
        "more text": ("live", encode_live(DeltaEvent(1, 1, 0, "4", full=True))),
        "what the agent is doing": ("live", encode_live(ProgressEvent(1, "calculate"))),
        "a live worker": ("presence", msgspec.json.encode(PRESENCE)),
    }


def _others() -> dict[str, tuple[str, bytes]]:
    stats = ProcessStats(
        memory_bytes=61_000_000, lag_s=0.0025, accepted_per_s=1.5, refused_per_s=0.1, ended_per_s=1.4, failed_per_s=0.2,
        first_token=(0, 3, 1), turn=(0, 2, 2), answer=(0, 1, 3),
    )  # fmt: skip
    alive = msgspec.structs.replace(PRESENCE, provider_routes={"demo": "demo:0123456789ab"}, stats=stats)
    let_in = PairedPerson(
        channel="telegram", sender="7", session="telegram:7", name="Ada", expires_at=AT + 600_000, at=AT, by="console",
        request="r1",
    )  # fmt: skip
    used = TokensUsed(prompt=20, completion=3, cached=16)
    failed = RequestFailed(status=500, code="turn_failed", message="Sorry.")
    request = msgspec.structs.replace(
        message("a", "m1", "7*7"),
        channel="api",
        chat_id="owner/~m1",
        metadata={"preset": "deep"},
        history=(UserEntry(content="6*7", turn=0), AssistantEntry(content="42", turn=0)),
    )
    sent = UserEntry(content="6*7", turn=1, at=AT)
    command = OutboundMessage(content="Done.", turn=3, in_reply_to=("m1",), kind="command", at=AT)
    plans: tuple[Plan, ...] = (AtPlan(AT), EveryPlan(3_600_000, AT), CronPlan("30 8 * * 1-5", "Europe/Berlin"))
    schedules = tuple(
        Schedule(
            id=f"a{at}", channel="web", chat_id="owner/quiet", owner="owner", text="six times seven?", plan=plan,
            misfire="once", timezone="Europe/Berlin", created_at=AT, thread="t1",
        )
        for at, plan in enumerate(plans)
    )  # fmt: skip
    task = SubagentTask(
        id="abcd2345", session=QUIET, turn=2, call_id="c1", task="six times seven?", label="sums", context="no hurry",
        wait=True, at=AT,
    )  # fmt: skip
    question = ApprovalEntry(
        id="0123456789", call_id="c2", turn=1, tool="exec", digest="d" * 64, arguments='{"command": "ls"}',
        people=("owner",), at=AT, expires_at=AT + 600_000,
    )  # fmt: skip
    seen = msgspec.structs.replace(RESULT, images=("plot.png",))
    file = SessionFile(
        kind="shoal session", version=1, session=QUIET, exported_at=AT, scope="user:web:owner", memory_md="# Owner",
        history_md=("2023-11-14: sums",), conversation=(sent, ASKED, RESULT), archive=(sent,),
        log=(Numbered(1, UserLine(id="m1", text="6*7", at=AT)), Numbered(2, command)),
        schedules=schedules, unreadable=1,
    )  # fmt: skip
    return {
        "the answer of a command": ("line", encode(command)),
        "an exported session": ("session", msgspec.json.encode(file)),
        "what a tool answered, with pictures": ("ledger", encode(seen)),
        "a question whether a tool may run": ("step", encode(question)),
        "what a call did inside Shoal": (
            "step",
            encode(EffectEntry(call_id="c1", turn=1, kind="say", to=QUIET, at=AT)),
        ),
        "messages joined": ("step", encode(JoinEntry(turn=1, messages=(2, 3), at=AT))),
        "functions that a program is to run": ("step", encode(CallsEntry(id="ab", turn=1, calls=CALLS, at=AT))),
        "the line that asks the program": (
            "line",
            encode(OutboundMessage(content="f", turn=1, kind="notice", calls=WaitingCalls(calls=CALLS, expires_at=AT))),
        ),
        "an answer that asks the program": ("answer", encode(StoredAnswer(finish="tool_calls", calls=CALLS))),
        "a message with functions and their results": (
            "inbound",
            encode(
                InboundMessage(
                    channel="api",
                    chat_id="owner/~a",
                    sender_id="owner",
                    id="m1",
                    content="hi",
                    timestamp=AT,
                    options=TurnOptions(tools=(ClientTool("f", "F.", "{}"),), tool_choice="f", steps=(ASKED, RESULT)),
                )
            ),
        ),
        "the answer to it": ("step", encode(DecisionEntry(call_id="c2", turn=1, yes=True, by="owner", at=AT))),
        "the line that asks": ("line", encode(question_line(question, wait_s=600))),
        "the line that says what was answered": (
            "line",
            encode(resolution_line(question, ApprovalAnswer(yes=True, sender="o"), now_ms=AT)),
        ),
        "a live worker, and how it does": ("presence", msgspec.json.encode(alive)),
        "somebody who was let in by a code": ("person", encode(let_in)),
        "a subagent's task": ("subagent", encode(task)),
        "a subagent's report": ("inbound", encode(report(task, "ok", "42", now_ms=AT))),
        "a reply and its trace": ("line", encode(OutboundMessage(content="42", turn=1, traceparent=TRACE))),
        "a message with its conversation and its model": ("inbound", encode(request)),
        "a reply that is not whole, and what it used": (
            "line",
            encode(OutboundMessage(content="4", turn=1, usage=used, unfinished=True)),
        ),
        "a reply after a worker died": (
            "line",
            encode(OutboundMessage(content="4", turn=1, takeovers=(Takeover("a1", "b2", 9),))),
        ),
        "text of a worker that took over": (
            "live",
            encode_live(DeltaEvent(1, 2, 0, "4", full=True, at=AT, worker="b2", takeovers=(Takeover("a1", "b2", 9),))),
        ),
        "the answer to a request": ("answer", encode(StoredAnswer(text="42", finish="length", usage=used))),
        "a request that got none": ("answer", encode(StoredAnswer(failed=failed))),
        "a tool's answer that has text of strangers": ("ledger", encode(msgspec.structs.replace(seen, sources=MARK))),
        "an entry of a marked conversation": ("transcript", encode(msgspec.structs.replace(sent, sources=MARK))),
        "a marked subagent's report": ("inbound", encode(report(task, "ok", "42", now_ms=AT, sources=MARK))),
        "a marked line that asks": (
            "line",
            encode(question_line(msgspec.structs.replace(question, sources=MARK), wait_s=600)),
        ),
        "a subagent's task and its trace": ("subagent", encode(msgspec.structs.replace(task, traceparent=TRACE))),
    }


MARK = ("evil.example", "mail of x")


async def work(client: RedisClient) -> None:
    """Leave the store as a fleet does that is switched off: one chat within a turn, one answered, a dead letter, a job,
    a live worker."""
    inbox, turns = Inbox(client), Turns(client)
    queue = LeaseQueue(client, "turns", owner=OWNER, lease_s=0.001)

    async def say(chat: str, id: str, content: str) -> None:
        await inbox.ingest(message(chat, id, content), log_line=UserLine(id=id, text=content, at=AT), principal="owner")

    await say("quiet", "q1", "hello")
    [claim] = await queue.acquire(1)
    history: list[TranscriptEntry] = [UserEntry(content="hello", turn=1, at=AT), AssistantEntry(content="hi", turn=1)]
    lines = [OutboundMessage(content="hi", turn=1, in_reply_to=("q1",))]
    await turns.commit(claim, history=history, lines=lines, event=TurnEvent(1, "done"))
    await say("quiet", "q2", "poison")
    [claim] = await queue.acquire(1)
    assert claim.turn is not None
    dead = DeadLetter("crashes", claim.turn.record)
    sorry = OutboundMessage(content="Sorry.", turn=2, kind="apology")
    await turns.commit(claim, history=[], lines=[sorry], event=TurnEvent(2, "failed"), dead=dead)

    await say("running", "r1", "6*7")
    [claim] = await queue.acquire(1)
    await queue.release(claim, count="errors")
    [claim] = await queue.acquire(1)
    steps: tuple[LedgerEntry, ...] = (ASKED, INTENT, RESULT)
    for step, entry in enumerate(steps, 1):
        await turns.append_step(claim, step, entry)
    for n in (2, 3):
        await say("running", f"r{n}", f"{n}*7")
    await Jobs(client).enqueue("probe")
    await announce(client, PRESENCE)
    await client.command("DEL", keys.wake("turns"), keys.wake("jobs"))
