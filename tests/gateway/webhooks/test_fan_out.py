"""Notices become events, however many waited, and whatever is broken in the chats that they are about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.webhooks.fan_out import REPEAT_S, NoticeFanOut
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, WaitingCalls
from shared.messages.transcript import AssistantEntry, CallsEntry, ToolCall
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.notices import AT_ONCE, MOST, Notices
from shared.store.responses.responses import Responses
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.client_calls import ClientCalls
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES
from tests.gateway.webhooks.stage import Stage, outgoing
from tests.helpers.clock import HandClock
from tests.helpers.wait import eventually

SESSION = "api:ann/n"
MANY = 30
CALLS = (ToolCall(id="call_1", name="look", arguments="{}"),)


async def ask(stage: Stage, turn: int) -> ApiRequest:
    """A stored response whose message waits in the named session."""
    begun = await Requests(stage.client).begin("ann", key=None, session=SESSION, asked="h", stored=True)
    await stage.say(SESSION, begun.ticket)
    await keep(stage, begun, turn)
    return begun


async def keep(stage: Stage, begun: ApiRequest, turn: int, *, continues: bool = False) -> None:
    assert await Responses(stage.client).keep("ann", begun, turn, shown=b"{}", input=b"[]", continues=continues)


async def opened(stage: Stage) -> None:
    """The stream is there, and no gateway."""
    await Notices(stage.client).open()


async def sent_events(stage: Stage, many: int) -> list[tuple[str, str]]:
    """The events that a gateway sends of all that happened: type and response or session, in order."""
    async with stage.gateway():
        await stage.program.called(many)
        await eventually(lambda: _all_sent(stage))
    data = [(event["type"], event["data"]) for event in stage.program.events]
    return [(type, about.get("id") or f"{about['session']} {about['turn']}") for type, about in data]


async def _all_sent(stage: Stage) -> bool:
    return not await stage.client.command("EXISTS", keys.outbox("hook:erp")) and not await stage.notices()


async def ask_functions(stage: Stage, ids: Sequence[str], *, step: int) -> None:
    """The turn of the session that is due asks for functions."""
    claim = await stage.claim()
    await stage.turns.append_step(claim, step, AssistantEntry(content=None, turn=1, tool_calls=CALLS))
    line = OutboundMessage(
        content="", turn=1, in_reply_to=tuple(ids), kind="notice", calls=WaitingCalls(calls=CALLS), at=1
    )
    entry = CallsEntry(id=f"ab{step}", turn=1, calls=CALLS)
    assert await stage.turns.park(claim, "turns", step + 1, entry, line, wait_s=600)


async def submit(stage: Stage) -> ApiRequest:
    """A stored response that goes on with the turn."""
    begun = await Requests(stage.client).begin("ann", key=None, session=SESSION, asked="h", stored=True)
    calls = ClientCalls(stage.client)
    done = await calls.submit(SESSION, {"call_1": "x"}, request=begun.ticket, cap_bytes=LEDGER_CAP_BYTES)
    assert done.outcome == "done"
    await keep(stage, begun, done.turn, continues=True)
    return begun


async def test_each_of_many_responses_of_one_session_is_an_event(redis_url: str, tmp_path: Path) -> None:
    """They were asked for together, and ended while no gateway ran."""
    async with outgoing(redis_url, tmp_path, events=("response.completed",)) as s:
        await opened(s)
        asked = [await ask(s, turn) for turn in range(1, MANY + 1)]
        for begun in asked:
            await s.end(await s.claim(), [begun.ticket])
        assert await sent_events(s, MANY) == [("response.completed", f"resp_{begun.ticket}") for begun in asked]


async def test_each_of_many_responses_that_a_command_drops_is_an_event(redis_url: str, tmp_path: Path) -> None:
    """The one that ran, and those that waited."""
    async with outgoing(redis_url, tmp_path, events=("response.cancelled",)) as s:
        await opened(s)
        asked = [await ask(s, turn) for turn in range(1, MANY + 1)]
        await s.claim()
        ingress = Ingress(s.client, build_commands(Settings(), s.client))
        new = InboundMessage(
            channel="api", chat_id="ann/n", sender_id="ann", id="c", content="/new", timestamp=1_700_000_000_000
        )
        assert (await ingress.ingest(new)).turn == 0
        assert await sent_events(s, MANY) == [("response.cancelled", f"resp_{begun.ticket}") for begun in asked]


@pytest.mark.parametrize("late", [False, True])
async def test_an_end_after_many_lines_is_an_event(redis_url: str, tmp_path: Path, late: bool) -> None:
    """The agent sent much by its message tool; the response was stored at once, or after its end."""
    async with outgoing(redis_url, tmp_path, events=("response.completed",)) as s:
        await opened(s)
        begun = await Requests(s.client).begin("ann", key=None, session=SESSION, asked="h", stored=True)
        await s.say(SESSION, begun.ticket)
        if not late:
            await keep(s, begun, 1)
        sent = [OutboundMessage(content=f"{number}", turn=1, kind="notice", sent_by_tool=True) for number in range(250)]
        last = OutboundMessage(content="", turn=1, in_reply_to=(begun.ticket,))
        await s.turns.commit(await s.claim(), history=[], lines=[*sent, last], event=TurnEvent(1, "done"))
        if late:
            await keep(s, begun, 1)
        # With the notice of its turn and that of the late store there are two webhooks, under one id.
        assert set(await sent_events(s, 1)) == {("response.completed", f"resp_{begun.ticket}")}
        assert len(set(s.program.ids)) == 1


async def test_a_turn_that_asks_for_functions_ends_each_response_once(redis_url: str, tmp_path: Path) -> None:
    """Its last line names the message again; what goes on with the turn is found among many newer responses."""
    async with outgoing(redis_url, tmp_path) as s:
        await opened(s)
        first = await ask(s, 1)
        await ask_functions(s, [first.ticket], step=1)
        second = await submit(s)
        await ask_functions(s, [first.ticket], step=4)
        third = await submit(s)
        for turn in range(2, MANY + 2):
            await ask(s, turn)
        await s.end(await s.claim(), [first.ticket], "failed", kind="apology", failed="error")
        assert await sent_events(s, 6) == [
            ("calls.requested", f"{SESSION} 1"),
            ("response.completed", f"resp_{first.ticket}"),
            ("calls.requested", f"{SESSION} 1"),
            ("response.completed", f"resp_{second.ticket}"),
            ("turn.failed", f"{SESSION} 1"),
            ("response.failed", f"resp_{third.ticket}"),
        ]


async def test_an_id_of_another_session_is_no_response(redis_url: str, tmp_path: Path) -> None:
    """A message may have any id."""
    async with outgoing(redis_url, tmp_path) as s:
        await opened(s)
        begun = await ask(s, 1)
        await s.claim()
        await s.turn("api:bob/n", id=begun.ticket)
        assert await sent_events(s, 1) == [("turn.completed", "api:bob/n 1")]


@pytest.mark.parametrize("broken", ["log", "response", "number"])
async def test_a_broken_key_of_a_chat_stops_no_other(redis_url: str, tmp_path: Path, broken: str) -> None:
    """The turn is told, and everything after it; the log says what is missing, without a text or a name."""
    async with outgoing(redis_url, tmp_path) as s:
        await opened(s)
        begun = await ask(s, 1)
        await s.end(await s.claim(), [begun.ticket])
        match broken:
            case "log":
                await s.client.command("SET", keys.outbox(SESSION), "x")
            case "response":
                await s.client.command("SET", keys.response(begun.ticket), "x")
            case _:
                await s.client.command("HSET", keys.response(begun.ticket), "n", "x")
        await s.turn("web:ann/b")
        with capture_logs() as lines:
            assert await sent_events(s, 2) == [("turn.completed", f"{SESSION} 1"), ("turn.completed", "web:ann/b 1")]
        [line] = [line for line in lines if line["event"] == "responses not read"]
        assert (line["log_level"], line["turn"]) == ("error", 1)
        assert "ann" not in line["session"]


@pytest.mark.parametrize("number", ["-5", str(2**64)])
async def test_a_number_that_no_line_has_stops_nothing(redis_url: str, tmp_path: Path, number: str) -> None:
    """The server would refuse to look for it, again and again."""
    async with outgoing(redis_url, tmp_path) as s:
        await opened(s)
        await s.client.command("XADD", keys.NOTICES, "*", "s", SESSION, "n", 1, "q", number, "w", "withdrawn")
        await s.turn()
        assert await sent_events(s, 1) == [("turn.completed", "web:ann/a 1")]


async def test_a_stream_that_is_refused_is_in_the_log_once_a_minute(client: RedisClient) -> None:
    """A missing right or a broken key does not end by itself, so an operator must find it."""
    await client.command("SET", keys.NOTICES, "x")
    clock, draining = HandClock(), asyncio.Event()
    made = NoticeFanOut(client, {}, clock=clock)

    def refused() -> list[str]:
        return [line["error"] for line in lines if line["event"] == "notices refused"]

    with capture_logs() as lines:
        running = asyncio.create_task(made.run(draining))
        await eventually(lambda: len(refused()) == 1)
        clock.at += REPEAT_S
        await eventually(lambda: len(refused()) == 2)
        draining.set()
        await running
    assert refused()[0].startswith("WRONGTYPE")
    assert len(refused()) == 2


async def test_notices_near_their_limit_are_in_the_log(client: RedisClient) -> None:
    """Before the oldest are lost; once a minute, however many batches are read."""
    notices = Notices(client)
    await notices.open()
    fill = "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'w', '') end"
    await client.command("EVAL", fill, 1, keys.NOTICES, MOST * 9 // 10 + AT_ONCE)
    clock = HandClock()
    made = NoticeFanOut(client, {}, clock=clock)
    with capture_logs() as lines:
        assert await made.run_once() == AT_ONCE
        assert await made.run_once() == AT_ONCE
        clock.at += REPEAT_S
        assert await made.run_once() == AT_ONCE
    [line] = [line for line in lines if line["event"] == "notices near their limit"]
    assert line["limit"] == MOST
    assert line["waiting"] > MOST * 9 // 10
