"""Questions whether a tool may run, as clients of the web channel see and answer them, and as chat commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from shared.ids import log_id
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import DecisionEntry
from shared.metrics import REGISTRY
from shared.store import keys
from shared.store.access.audit import Audit
from shared.store.turns.approvals import ApprovalAnswer
from tests.gateway.harness import TOKENS, Gateway, client, gateway, session_of, stranger
from tests.helpers.build import message
from tests.helpers.parked import QUESTION, decisions, park


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def decision(gw: Gateway) -> DecisionEntry | None:
    return next(iter(await decisions(gw.client, session_of("a"))), None)


async def test_a_question_is_shown_live_and_to_whoever_comes_later(gw: Gateway) -> None:
    """With exactly what would run; its answer is a line like others, for every device."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        await phone.say("a", "go")
        await laptop.send("resume", chat="a", after=0)
        await park(gw.client, msgspec.structs.replace(QUESTION, sources=("evil.example",)))
        for device in (phone, laptop):
            frame = await device.next("approval")
            assert frame["sources"] == ["evil.example"]
            shown = (frame["call"], frame["state"], frame["tool"], frame["arguments"], frame["digest"], frame["turn"])
            assert shown == (QUESTION.id, "open", "exec", QUESTION.arguments, QUESTION.digest, 1)
            assert frame["expires_at"] > frame["at"]
            assert "<b>" not in frame["html"]
        async with client(gw.address) as late:
            await late.send("history", chat="a")
            lines = (await late.next("history"))["lines"]
            assert [line["type"] for line in lines] == ["message", "approval"]
        await laptop.send("approve", chat="a", call=QUESTION.id, yes=True, digest=QUESTION.digest)
        for device in (phone, laptop):
            answered = await device.next("approval", state="yes")
            assert (answered["call"], answered["by"]) == (QUESTION.id, "owner")
    found = await decision(gw)
    assert found is not None
    assert (found.yes, found.by) == (True, "owner")


@pytest.mark.parametrize(
    ("chat", "call", "digest", "token", "code"),
    [
        ("a", "ffffffffff", "", TOKENS["owner"], "approval_unknown"),
        ("b", QUESTION.id, "", TOKENS["owner"], "approval_unknown"),
        ("a", QUESTION.id, "", "anns-secret", "approval_unknown"),
        ("a", QUESTION.id, "e" * 64, TOKENS["owner"], "approval_changed"),
        ("a", "", "", TOKENS["owner"], "approval_unknown"),
    ],
)
async def test_an_answer_that_is_none_is_refused_by_name(
    gw: Gateway, chat: str, call: str, digest: str, token: str, code: str
) -> None:
    """Another call's, another chat's, another person's, about other arguments; nothing is recorded, the refusal is."""
    before = REGISTRY.get_sample_value("shoal_approvals_total", {"outcome": "refused"}) or 0
    async with client(gw.address) as me, client(gw.address, token=token) as somebody:
        await me.say("a", "go")
        await park(gw.client)
        await somebody.send("approve", chat=chat, call=call, yes=True, digest=digest)
        failure = await somebody.next("error")
        assert failure["code"] == code
    assert await decision(gw) is None
    assert REGISTRY.get_sample_value("shoal_approvals_total", {"outcome": "refused"}) == before + 1


async def test_a_second_answer_and_one_for_somebody_else_are_refused(gw: Gateway) -> None:
    """In a chat of several people only who asked may answer."""
    async with client(gw.address) as me:
        await me.say("a", "go")
        await park(gw.client, msgspec.structs.replace(QUESTION, people=("somebody",)))
        await me.send("approve", chat="a", call=QUESTION.id, yes=True)
        assert (await me.next("error"))["code"] == "approval_not_allowed"
        assert (
            await gw.sink.approve(session_of("a"), QUESTION.id, ApprovalAnswer(yes=False, sender="somebody")) == "done"
        )
        await me.send("approve", chat="a", call=QUESTION.id, yes=True)
        assert (await me.next("error"))["code"] == "approval_used"
    found = await decision(gw)
    assert found is not None
    assert not found.yes


async def test_two_gateways_with_a_yes_and_a_no_record_one(gw: Gateway, redis_url: str) -> None:
    """Whoever is first; the other one is told."""
    async with gateway(redis_url) as other, client(gw.address) as one, client(other.address) as two:
        await one.say("a", "go")
        await park(gw.client)
        await one.send("approve", chat="a", call=QUESTION.id, yes=True)
        await two.send("approve", chat="a", call=QUESTION.id, yes=False)
        await one.next("approval", state="open")
        settled = await one.next("approval")
        found = await decision(gw)
        assert found is not None
        assert settled["state"] == ("yes" if found.yes else "no")
        loser = two if found.yes else one
        assert (await loser.next("error"))["code"] == "approval_used"


def command(text: str, sender: str = "owner") -> InboundMessage:
    return msgspec.structs.replace(message(text), sender_id=sender)


async def ask(gw: Gateway, text: str, sender: str = "owner") -> str:
    """A command in the chat, and what it is answered."""
    asked = command(text, sender)
    await gw.sink.ingest(asked)
    entries = await gw.client.command("XREVRANGE", keys.outbox(session_of("a")), "+", "-", "COUNT", 1)
    return str(msgspec.msgpack.decode(entries[0][1][1])["content"])


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_a_text_answers_as_well_and_counts_once(gw: Gateway, word: str) -> None:
    """For channels without buttons; delivered twice it is one answer; what does not count says why."""
    assert "not waiting" in await ask(gw, f"/{word}")
    await gw.sink.ingest(message("go"))
    await park(gw.client, msgspec.structs.replace(QUESTION, sources=("evil.example",)))
    assert "waiting for your yes to `exec`, after reading evil.example: `/yes`" in await ask(gw, "/status")
    assert "no such question" in await ask(gw, f"/{word} ffff")
    assert "Only who asked" in (await ask(gw, f"/{word}", sender="mallory"))
    assert await decision(gw) is None
    answer = command(f"/{word} {QUESTION.id}")
    first = await gw.sink.ingest(answer)
    again = await gw.sink.ingest(answer)
    assert (first.duplicate, again.duplicate) == (False, True)
    found = await decision(gw)
    assert found is not None
    assert found.yes == (word == "yes")
    assert "not waiting" in await ask(gw, "/yes")
    assert "asked any more" in await ask(gw, f"/yes {QUESTION.id}")


async def test_a_yes_to_a_question_that_could_not_be_shown_does_not_count(gw: Gateway) -> None:
    """It says why and where to go; a no counts, as do the answers of channels that show it."""
    asked: list[str] = []

    def shows(line: OutboundMessage) -> bool:
        asked.append(line.content)
        return False

    await gw.sink.ingest(message("go"))
    await park(gw.client)
    gw.sink.limit_questions("web", shows)
    refusal = await ask(gw, "/yes")
    assert "too long to be shown here" in refusal
    assert "chat page" in refusal
    assert QUESTION.arguments in asked[0]
    assert await decision(gw) is None
    [line] = await Audit(gw.client).newest(9)
    assert (line.kind, line.outcome, line.actor) == ("approval", "too_long", "web:owner")
    await ask(gw, "/no")
    found = await decision(gw)
    assert found is not None
    assert not found.yes


async def test_a_late_text_is_answered_so(gw: Gateway) -> None:
    """The store decides, by its own clock, between what was read and what is written."""
    await gw.sink.ingest(message("go"))
    await park(gw.client)
    session = keys.session(session_of("a"))
    reply = (await gw.client.command("HGET", session, "asked")).decode().split()
    reply[2] = "1"
    await gw.client.command("HSET", session, "asked", " ".join(reply))
    assert "time for an answer is over" in await ask(gw, "/yes")
    assert await decision(gw) is None


async def test_every_answer_leaves_a_line_in_the_audit_record(gw: Gateway) -> None:
    """Who, which chat by its hash, which turn, which call by the hash of its arguments; from a button or a command."""
    session = session_of("a")
    await gw.sink.ingest(message("go"))
    await park(gw.client)
    await ask(gw, "/yes", sender="mallory")
    assert await gw.sink.approve(session, QUESTION.id, ApprovalAnswer(yes=True, sender="mallory")) == "not_allowed"
    assert (
        await gw.sink.approve(session, QUESTION.id, ApprovalAnswer(yes=True, sender="owner"), digest=QUESTION.digest)
        == "done"
    )
    assert await gw.sink.approve(session, QUESTION.id, ApprovalAnswer(yes=False, sender="owner")) == "used"
    lines = list(reversed(await Audit(gw.client).newest(9)))
    assert [(one.outcome, one.actor) for one in lines] == [
        ("not_allowed", "web:mallory"),
        ("not_allowed", "web:mallory"),
        ("yes", "web:owner"),
        ("used", "web:owner"),
    ]
    assert {(one.kind, one.session) for one in lines} == {("approval", log_id(session))}
    assert [(one.turn, one.about) for one in lines[:3]] == [(1, f"exec {'d' * 16}")] * 3
    assert (lines[3].turn, lines[3].about) == (0, QUESTION.id)


STANDING = msgspec.structs.replace(QUESTION, standing=f"call {QUESTION.digest}", touches=("network: none",))


async def test_a_device_can_say_yes_for_good_and_the_others_learn_where(gw: Gateway) -> None:
    """Only where the question offers it; every device is told on which one it was answered."""
    async with client(gw.address) as laptop, stranger(gw.address) as phone:
        await phone.send("hello", token=TOKENS["owner"], device="phone")
        await phone.next("welcome")
        await laptop.say("a", "go")
        await laptop.send("resume", chat="a", after=0)
        await park(gw.client, STANDING)
        frame = await laptop.next("approval")
        assert (frame["standing"], frame["touches"], "safe" in frame) == (True, ["network: none"], False)
        await phone.send("approve", chat="a", call=QUESTION.id, yes=True, always=True)
        answered = await laptop.next("approval", state="yes")
        assert (answered["where"], answered["standing"], answered["by"]) == ("phone", True, "owner")
    assert "`/always off 0123456789`" in await ask(gw, "/always")
    assert "ask again" in await ask(gw, "/always off all")
    assert "no standing yes" in await ask(gw, "/always")


async def test_a_yes_for_good_is_refused_where_it_is_not_offered(gw: Gateway) -> None:
    async with client(gw.address) as me:
        await me.say("a", "go")
        await park(gw.client)
        await me.send("approve", chat="a", call=QUESTION.id, yes=True, always=True)
        assert (await me.next("error"))["code"] == "approval_not_standing"
    assert "this one call only" in await ask(gw, f"/always {QUESTION.id}")
    assert await decision(gw) is None
