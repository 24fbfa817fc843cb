"""Webhooks that go out: which events there are, in which form, to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.channels.web.api.answer import stored_answer
from gateway.channels.web.api.responses.shape import status_of
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.webhooks.events import response_status
from shared.messages.outbound import OutboundKind, OutboundMessage, WaitingCalls
from shared.messages.transcript import CallsEntry, ToolCall
from shared.settings import OutgoingWebhook, Secret, Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.responses import Responses
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.known_messages import Withdrawals
from tests.gateway.webhooks.stage import OTHER, SECRET, Stage, outgoing
from tests.helpers.parked import QUESTION, ask
from tests.helpers.wait import eventually


async def asked_for(client: RedisClient, *, keep: bool = True, session: str | None = None) -> ApiRequest:
    """A stored response that begins."""
    begun = await Requests(client).begin("ann", key=None, session=session, asked="h", stored=True)
    if keep:
        await kept(client, begun, 1)
    return begun


async def kept(client: RedisClient, begun: ApiRequest, turn: int) -> None:
    await client.command("HSETNX", keys.session(begun.session), "log", 0)
    assert await Responses(client).keep("ann", begun, turn, shown=b"{}", input=b"[]")


@pytest.mark.parametrize(
    ("state", "kind", "type"),
    [
        ("done", "reply", "turn.completed"),
        ("stopped", "stopped", "turn.stopped"),
        ("failed", "apology", "turn.failed"),
    ],
)
async def test_the_end_of_a_turn_is_a_thin_event(
    redis_url: str, tmp_path: Path, state: str, kind: OutboundKind, type: str
) -> None:
    """Ids and a type, never a text; OpenAI's client verifies it."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        await s.turn(state=state, kind=kind)  # type: ignore[arg-type]
        [call] = await s.program.called(1)
        [event] = s.program.events
        assert event["id"] == call.headers["webhook-id"]
        assert event["id"].startswith("evt_")
        assert (event["object"], event["type"]) == ("event", type)
        assert event["data"] == {"session": "web:ann/a", "turn": 1}
        assert event.keys() == {"id", "object", "type", "created_at", "data"}
        assert call.headers["content-type"] == "application/json"
        await eventually(lambda: _nothing_waits(s))


async def _nothing_waits(stage: Stage) -> bool:
    return not await stage.client.command("EXISTS", keys.outbox("hook:erp")) and not await stage.notices()


async def test_a_question_for_a_person_is_an_event(redis_url: str, tmp_path: Path) -> None:
    """With its id, by which a program can find it; not with the call."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        await s.say()
        assert await ask(s.turns, await s.claim(), 1, QUESTION)
        await s.program.called(1)
        [event] = s.program.events
        assert event["type"] == "approval.requested"
        assert event["data"] == {"session": "web:ann/a", "turn": 1, "id": QUESTION.id}


async def test_functions_of_a_client_are_asked_for_and_a_response_ends_there(redis_url: str, tmp_path: Path) -> None:
    """The response is completed as OpenAI's would be, and what continues it is another one."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session=None, asked="h", stored=True)
        await s.say(begun.session, begun.ticket)
        await kept(s.client, begun, 1)
        claim = await s.claim()
        calls = (ToolCall(id="call_1", name="look", arguments="{}"),)
        line = OutboundMessage(
            content="", turn=1, in_reply_to=(begun.ticket,), kind="notice", calls=WaitingCalls(calls=calls)
        )
        entry = CallsEntry(id="ab", turn=1, calls=calls)
        assert await s.turns.park(claim, "turns", 1, entry, line, wait_s=600)
        await s.program.called(2)
        first, second = s.program.events
        assert (first["type"], first["data"]["calls"]) == ("calls.requested", ["call_1"])
        assert (second["type"], second["data"]) == ("response.completed", {"id": f"resp_{begun.ticket}"})


@pytest.mark.parametrize(
    ("state", "line", "type"),
    [
        ("done", {}, "response.completed"),
        ("done", {"unfinished": True}, "response.incomplete"),
        ("stopped", {"kind": "stopped"}, "response.cancelled"),
        ("failed", {"kind": "apology", "failed": "error"}, "response.failed"),
    ],
)
async def test_the_end_of_a_stored_response_is_an_event(
    redis_url: str, tmp_path: Path, state: str, line: dict[str, object], type: str
) -> None:
    """In OpenAI's form: the id, and no more."""
    events = (type,)
    async with outgoing(redis_url, tmp_path, events=events, sessions=("api:ann/*",)) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session=None, asked="h", stored=True)
        message = await s.say(begun.session, begun.ticket)
        await kept(s.client, begun, 1)
        await s.end(await s.claim(), [message.id], state, **line)  # type: ignore[arg-type]
        await s.program.called(1)
        [event] = s.program.events
        assert (event["type"], event["data"]) == (type, {"id": f"resp_{begun.ticket}"})
        assert event["created_at"] == 5


async def test_a_response_that_is_stored_after_its_turn_is_an_event_as_well(redis_url: str, tmp_path: Path) -> None:
    """The gateway died in between, and its client asks again."""
    async with outgoing(redis_url, tmp_path, events=("response.completed",)) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session=None, asked="h", stored=True)
        await s.turn(begun.session, id=begun.ticket)
        await eventually(lambda: _nothing_waits(s))
        assert s.program.calls == []
        await kept(s.client, begun, 1)
        await s.program.called(1)
        await kept(s.client, begun, 1)  # a repetition changes nothing
        await eventually(lambda: _nothing_waits(s))
        [event] = s.program.events
        assert event["data"] == {"id": f"resp_{begun.ticket}"}


async def test_a_response_that_is_withdrawn_is_cancelled(redis_url: str, tmp_path: Path) -> None:
    """It never had a turn."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session=None, asked="h", stored=True)
        message = await s.say(begun.session, begun.ticket)
        await kept(s.client, begun, 1)
        assert await Withdrawals(s.client).withdraw("api", message.chat_id, message.id) == "withdrawn"
        await s.program.called(1)
        [event] = s.program.events
        assert (event["type"], event["data"]) == ("response.cancelled", {"id": f"resp_{begun.ticket}"})


async def test_a_conversation_that_ends_with_a_command_ends_its_turn(redis_url: str, tmp_path: Path) -> None:
    """The turn that ran is stopped, and a response that waited in it is cancelled."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session="api:ann/n", asked="h", stored=True)
        message = await s.say("api:ann/n", begun.ticket)
        await kept(s.client, begun, 1)
        await s.claim()
        ingress = Ingress(s.client, build_commands(Settings(), s.client))
        command = replace(message, id="c", content="/new")
        assert (await ingress.ingest(command)).turn == 0
        await s.program.called(2)
        first, second = s.program.events
        assert (first["type"], first["data"]) == ("turn.stopped", {"session": "api:ann/n", "turn": 1})
        assert (second["type"], second["data"]) == ("response.cancelled", {"id": f"resp_{begun.ticket}"})


@pytest.mark.parametrize(
    "line",
    [
        OutboundMessage(content="x", turn=1, in_reply_to=("t",)),
        OutboundMessage(content="x", turn=1, in_reply_to=("t",), unfinished=True),
        OutboundMessage(content="x", turn=1, in_reply_to=("t",), kind="stopped"),
        OutboundMessage(content="x", turn=1, in_reply_to=("t",), kind="apology", failed="error"),
        OutboundMessage(content="", turn=1, in_reply_to=("t",), kind="withdrawn"),
        OutboundMessage(content="x", turn=1, in_reply_to=("other", "t"), kind="command"),
        OutboundMessage(content="x", turn=1, in_reply_to=("t",), kind="command"),
        OutboundMessage(content="", turn=1, in_reply_to=("t",), kind="notice", calls=WaitingCalls(calls=())),
    ],
)
def test_the_status_is_that_of_the_api(line: OutboundMessage) -> None:
    """Whoever retrieves the response then reads the same."""
    assert response_status("t", line) == status_of(stored_answer(line, [], "t"))


async def test_an_endpoint_gets_what_it_asked_for(redis_url: str, tmp_path: Path) -> None:
    """Its events, of its sessions."""
    async with outgoing(redis_url, tmp_path, events=("turn.failed",), sessions=("web:bob/*", "telegram:*")) as s:
        async with s.gateway():
            await s.turn("web:ann/a", "failed")
            await s.turn("web:bob/a", "done")
            await s.turn("web:bob/a", "failed")
            await s.turn("telegram:42", "failed")
            await s.program.called(2)
            await eventually(lambda: _nothing_waits(s))
            assert [event["data"]["session"] for event in s.program.events] == ["web:bob/a", "telegram:42"]


async def test_without_an_endpoint_nothing_is_written(redis_url: str, tmp_path: Path) -> None:
    """A fleet without webhooks pays one look-up a turn."""
    async with outgoing(redis_url, tmp_path) as s:
        await s.turn()
        assert await s.client.command("EXISTS", keys.NOTICES) == 0


async def test_two_gateways_tell_each_event_once_and_in_order(redis_url: str, tmp_path: Path) -> None:
    """Whoever makes the line, and whoever sends it."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway(), s.gateway():
        for _ in range(30):
            await s.turn()
        await s.program.called(30)
        await eventually(lambda: _nothing_waits(s))
        assert [event["data"]["turn"] for event in s.program.events] == [*range(1, 31)]
        assert len(set(s.program.ids)) == 30


async def test_what_happened_while_no_gateway_ran_is_sent_later(redis_url: str, tmp_path: Path) -> None:
    """The notice is a part of the commit."""
    async with outgoing(redis_url, tmp_path) as s:
        async with s.gateway():
            pass
        await s.turn()
        assert await s.notices() == 1
        async with s.gateway():
            await s.program.called(1)


async def test_each_of_two_secrets_verifies(redis_url: str, tmp_path: Path) -> None:
    """While one replaces the other, on whichever side first."""
    async with outgoing(redis_url, tmp_path, secret=Secret(OTHER), old_secret=Secret(SECRET)) as s, s.gateway():
        await s.turn()
        [call] = await s.program.called(1)
        assert len(s.program.events) == 1
        assert call.headers["webhook-signature"].count("v1,") == 2


async def test_endpoints_get_ids_of_their_own(redis_url: str, tmp_path: Path) -> None:
    """One that is broken holds up no other."""
    async with outgoing(redis_url, tmp_path) as s:
        away = OutgoingWebhook(url="http://127.0.0.1:9/", secret=Secret(OTHER), allow_private=True)
        s.settings.webhooks.out["away"] = away
        async with s.gateway():
            await s.turn()
            await s.program.called(1)
            assert await s.client.command("XLEN", keys.outbox("hook:away")) == 1
