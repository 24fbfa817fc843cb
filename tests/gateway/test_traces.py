"""The trace of a message begins, or goes on, where a gateway takes it, and comes back with the answer's line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.process.traces import delivery_span, receive_span
from shared.errors import Refused
from shared.ids import log_id
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.outbound import OutboundMessage, UserLine
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tracing import fresh
from shared.tracing.tracer import NO_SPAN, parse
from tests.gateway.channels.api.asking import HELLO, post, waiting_message
from tests.gateway.delivery_stage import run_delivery as to_platform
from tests.gateway.harness import client as connected
from tests.gateway.harness import gateway
from tests.helpers.build import message
from tests.helpers.recorded import recording
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
CAME = fresh(sampled=True)
SHOWN = UserLine(id="m", text="hi")


def ingress(client: RedisClient, limits: InboxLimits | None = None) -> Ingress:
    return Ingress(client, build_commands(Settings(), client), limits)


async def waiting(client: RedisClient) -> list[InboundMessage]:
    """What lies in the inbox."""
    return [decode_inbound(fields[3]) for _, fields in await client.command("XRANGE", keys.inbox(SESSION), "-", "+")]


@pytest.mark.parametrize("on", [False, True])
async def test_a_message_without_a_trace_gets_one(client: RedisClient, on: bool) -> None:
    """Also where no traces are sent: a worker's log then says which lines are of one message."""
    if on:
        with recording() as kept:
            await ingress(client).ingest(message())
    else:
        await ingress(client).ingest(message())
    [stored] = await waiting(client)
    found = parse(stored.traceparent)
    assert found is not None
    assert found.sampled is on
    if on:
        assert kept.one("receive").context == found


@pytest.mark.parametrize("on", [False, True])
async def test_the_trace_that_a_message_brings_goes_on(client: RedisClient, on: bool) -> None:
    """Below the caller's span; as it came where no traces are sent."""
    message_in = replace(message(), traceparent=CAME.traceparent)
    if not on:
        await ingress(client).ingest(message_in)
        [stored] = await waiting(client)
        assert stored == message_in
        return
    with recording() as kept:
        await ingress(client).ingest(message_in)
    [stored] = await waiting(client)
    receive = kept.one("receive")
    assert (receive.parent, receive.remote, receive.context.trace_id) == (CAME, True, CAME.trace_id)
    assert parse(stored.traceparent) == receive.context


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{15,17}-[0-9a-f]{2}", fullmatch=True))
def test_a_traceparent_that_is_none_is_never_sent_on(given_one: str) -> None:
    """Whatever a client writes there: what is stored is valid."""
    with receive_span(replace(message(), traceparent=given_one)) as (traced, _):
        assert parse(traced.traceparent) is not None
        assert parse(given_one) in (None, parse(traced.traceparent))


async def test_a_span_tells_of_a_message_what_is_no_secret(client: RedisClient) -> None:
    """A hash of the session, numbers, and that it was seen before."""
    with recording() as kept:
        way_in = ingress(client)
        for _ in "ab":
            await way_in.ingest(message("canary", id="same"))
    first, again = kept.named("receive")
    expected = {"shoal.channel": "web", "shoal.session": log_id(SESSION), "shoal.turn": 1, "shoal.ahead": 0}
    assert first.attributes == expected | {"shoal.duplicate": False}
    assert again.attributes == expected | {"shoal.duplicate": True}
    [stored] = await waiting(client)
    assert parse(stored.traceparent) == first.context, "a message belongs to the trace in which it came first"


async def test_a_refusal_is_an_error_by_its_code_and_its_notice_is_of_the_trace(client: RedisClient) -> None:
    """The chat is told in the same trace."""
    with recording() as kept:
        way_in = ingress(client, InboxLimits(cap=1))
        await way_in.ingest(message())
        with pytest.raises(Refused):
            await way_in.ingest(message(), notice=True)
    refused = kept.named("receive")[1]
    assert refused.error == "inbox_full"
    [line] = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    assert isinstance(line, OutboundMessage)
    assert parse(line.traceparent) == refused.context


async def test_the_answer_of_a_command_is_of_the_trace_of_its_message(client: RedisClient) -> None:
    """It has no turn: the gateway answers."""
    message_in = replace(message("/help"), traceparent=CAME.traceparent)
    await ingress(client).ingest(message_in, show=SHOWN)
    line = (await Outbox(client).read_after(SESSION, after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    assert (line.kind, line.traceparent) == ("command", CAME.traceparent)


def test_a_delivery_is_below_what_made_the_line() -> None:
    """In the same trace; of a line that is of none, and of one that a person said, there is no span."""
    line = OutboundMessage(content="canary", turn=3, traceparent=CAME.traceparent)
    with recording() as kept:
        with delivery_span(line, "telegram", SESSION) as now:
            assert now.on
        assert delivery_span(replace(line, traceparent=None), "telegram", SESSION) is NO_SPAN
        assert delivery_span(SHOWN, "telegram", SESSION) is NO_SPAN
    deliver = kept.one("deliver")
    assert (deliver.parent, deliver.type.kind) == (CAME, "client")
    assert deliver.attributes == {"shoal.channel": "telegram", "shoal.session": log_id(SESSION), "shoal.turn": 3}
    assert delivery_span(line, "telegram", SESSION) is NO_SPAN, "traces are off"


async def test_a_program_at_the_socket_can_bring_its_own_trace(client: RedisClient, redis_url: str) -> None:
    """In the frame of each message: a header of the handshake would put a day's messages into one trace."""
    async with gateway(redis_url) as web, connected(web.address) as owner:
        await owner.send("message", id="m1", chat="a", text="hi", traceparent=CAME.traceparent)
        await owner.next("accepted", id="m1")
        await owner.send("message", id="m2", chat="a", text="hi", traceparent="nonsense")
        await owner.next("accepted", id="m2")
    first, second = await waiting(client)
    assert first.traceparent == CAME.traceparent
    assert parse(second.traceparent) is not None


async def test_what_the_page_is_shown_live_is_delivered_and_says_nothing_of_traces(
    client: RedisClient, redis_url: str
) -> None:
    """A span for the line that ends a turn; no frame has a traceparent."""
    async with gateway(redis_url) as web, connected(web.address) as owner:
        await owner.send("resume", chat="a", after=0)
        await owner.next("resumed")
        with recording() as kept:
            await owner.say("a", "/help")
            await owner.next("reply")
            await eventually(lambda: kept.named("deliver"))
        assert "traceparent" not in json.dumps(owner.seen)
    assert {one.context.trace_id for one in kept.spans} == {kept.one("receive").context.trace_id}
    assert kept.one("deliver").parent == kept.one("receive").context


async def test_a_line_for_a_platform_is_delivered_in_its_trace(redis_url: str, tmp_path: Path) -> None:
    """From the lease on its chat until the platform has it, whatever that takes."""
    async with to_platform(redis_url, tmp_path) as way_out:
        message_in = InboundMessage(
            channel=way_out.platform.name,
            chat_id="a",
            sender_id="ada",
            id="m1",
            content="canary",
            timestamp=1,
            traceparent=CAME.traceparent,
        )
        with recording() as kept:
            assert await Inbox(way_out.client).notify_refusal(message_in, Refused("inbox_full", "too many", 1.0))
            await way_out.until(lambda: kept.named("deliver"), "the span")
        assert way_out.platform.texts
    deliver = kept.one("deliver")
    assert deliver.parent == CAME
    assert deliver.attributes["shoal.channel"] == way_out.platform.name


@pytest.mark.parametrize("header", [CAME.traceparent, "nonsense", None], ids=["good", "nonsense", "none"])
async def test_a_request_to_the_api_brings_its_trace_in_the_header(
    client: RedisClient, redis_url: str, header: str | None
) -> None:
    """As W3C has it; one that says nothing is as good as none."""
    async with gateway(redis_url) as web:
        asking = asyncio.create_task(
            post(web.address, HELLO, headers={} if header is None else {"traceparent": header})
        )
        message_in = await waiting_message(client)
        asking.cancel()
        await asyncio.wait([asking])
    found = parse(message_in.traceparent)
    assert found is not None
    assert (found == CAME) is (header == CAME.traceparent)
