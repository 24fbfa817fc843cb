"""Several gateways of one channel are as one: nothing lost, nothing twice, every chat in order."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from functools import partial
from itertools import groupby

import pytest

from shared.metrics import DELIVERY_UNKNOWN
from shared.store import keys
from tests.contracts.channels.bench import Fault
from tests.contracts.channels.stage import Stage

CHATS = 8
LONG_LEASE_S = 120.0
SHORT_LEASE_S = 3.0
TRIES = 5
WORDS = ("one", "two", "three")


async def test_two_gateways_answer_every_message_once_and_in_order(stage: Stage) -> None:
    """Whoever hears it, whoever delivers it."""
    await stage.gateway()
    await stage.gateway()
    chats = [stage.bench.chat(number) for number in range(CHATS)]
    for word in ("one", "two", "three"):
        await asyncio.gather(*(stage.say(chat, word) for chat in chats))
    for chat in chats:
        await stage.sees(chat, "echo: one", "echo: two", "echo: three")
    assert Counter(message.content for message in stage.worker.received) == {"one": CHATS, "two": CHATS, "three": CHATS}
    await stage.quiet()


@pytest.mark.modes("exclusive")
async def test_one_gateway_listens_at_a_time_and_hands_over_at_once(stage: Stage) -> None:
    """Long before its lease would be over: the one that ends says so."""
    first = await stage.gateway(worker={"lease_s": LONG_LEASE_S})
    await stage.until(lambda: stage.bench.listeners() == 1, "a listener")
    second = await stage.gateway(worker={"lease_s": LONG_LEASE_S})
    assert (first.listens(), second.listens()) == (True, False)
    assert stage.bench.listeners() <= 1  # none in the moment between two polls
    await first.drain()
    await stage.until(second.listens, "the hand-over")
    await stage.say(stage.bench.chat(0), "hello")
    await stage.sees(stage.bench.chat(0), "echo: hello", within_s=LONG_LEASE_S / 2)


@pytest.mark.modes("exclusive")
async def test_another_gateway_listens_when_one_died(stage: Stage) -> None:
    """After its lease; what was said meanwhile is answered, and what was answered is not again."""
    first = await stage.gateway()
    await stage.until(first.listens, "a listener")
    await stage.gateway()
    chats = [stage.bench.chat(number) for number in range(3)]
    for chat in chats:
        await stage.say(chat, "one")
        await stage.sees(chat, "echo: one")
    await stage.crash(first)
    for chat in chats:
        await stage.say(chat, "two")
    for chat in chats:
        await stage.sees(chat, "echo: one", "echo: two")
    assert Counter(message.content for message in stage.worker.received) == {"one": 3, "two": 3}


@pytest.mark.benches("discord, exclusive", "telegram, exclusive")
async def test_a_listener_that_died_is_replaced_within_its_lease_and_two_seconds(stage: Stage) -> None:
    """From its death to a message that was said right after, in Redis. What else this machine does may take its time:
    the quickest of five counts. The lock is the same for every platform that takes one listener: here it is one with a
    socket and one that is polled, and above every one, without the time of the lease."""
    short = {"lease_s": SHORT_LEASE_S}
    listening, took_s = await stage.gateway(worker=short), math.inf
    await stage.say(stage.bench.chat(TRIES), "first")  # it has begun to listen
    await stage.sees(stage.bench.chat(TRIES), "echo: first")
    for number in range(TRIES):
        await stage.until(listening.listens, "a listener")
        standby = await stage.gateway(worker=short)
        await listening.crash()
        died_at = time.monotonic()
        chat = stage.bench.chat(number)
        await stage.say(chat, "hello")
        await stage.until(partial(stage.worker.texts, stage.bench.session(chat)), "the message")
        took_s = min(took_s, time.monotonic() - died_at)
        if took_s < SHORT_LEASE_S + 2:
            break
        listening = standby
    assert took_s < SHORT_LEASE_S + 2
    assert Counter(message.content for message in stage.worker.received) == {"first": 1, "hello": number + 1}


async def test_a_gateway_that_dies_among_many_messages_loses_and_doubles_none(stage: Stage) -> None:
    """The one that hears them, in the middle: each is one turn, each chat in order. Of its replies only the post that
    was under way may be there twice, where the platform can tell nothing of it, and that is counted."""
    gateways = [await stage.gateway(), await stage.gateway()]
    hearing = gateways[-1]
    if stage.bench.run_mode != "webhook":
        await stage.until(lambda: any(one.listens() for one in gateways), "a listener")
        hearing = next(one for one in gateways if one.listens())
    counted = DELIVERY_UNKNOWN.labels(stage.bench.name)
    before = counted._value.get()
    chats = [stage.bench.chat(number) for number in range(CHATS)]

    async def talk(chat: str) -> None:
        for word in WORDS:
            await stage.say(chat, word)

    def answered(chat: str) -> bool:
        return [text for text, _ in groupby(stage.texts(chat))] == [f"echo: {word}" for word in WORDS]

    talking = asyncio.gather(*(talk(chat) for chat in chats))
    await stage.until(lambda: len(stage.worker.received) >= CHATS, "some of the messages")
    await stage.crash(hearing)
    await talking
    for chat in chats:
        await stage.until(partial(answered, chat), "the replies")
    await stage.quiet()
    for chat in chats:
        assert stage.worker.texts(stage.bench.session(chat)) == list(WORDS)
    doubled = sum(len(stage.texts(chat)) - len(WORDS) for chat in chats)
    assert doubled <= counted._value.get() - before
    if hearing.channel.abilities.resend_guard != "nothing":
        assert doubled == 0


@pytest.mark.modes("socket")
async def test_no_more_gateways_listen_than_the_platform_takes(stage: Stage) -> None:
    """One more waits for its turn."""
    first = await stage.gateway()
    sockets = first.channel.abilities.sockets
    if not 0 < sockets < 5:
        pytest.skip(f"{stage.bench.name} takes {sockets} sockets")
    for _ in range(sockets):
        await stage.gateway()
    await stage.until(lambda: stage.bench.listeners() == sockets, "the listeners")
    assert sum(one.listens() for one in stage.replicas) == sockets
    await first.drain()
    await stage.until(lambda: stage.bench.listeners() == sockets, "the hand-over")


async def test_a_gateway_that_dies_in_a_send_loses_nothing(stage: Stage) -> None:
    """Another one goes on after its lease, in order. Whether the post had arrived, nobody knows: it is sent again."""
    first = await stage.gateway()
    await _hang_in_a_send(stage)
    await stage.crash(first)
    await stage.gateway()
    await stage.say(stage.bench.chat(0), "two")
    await stage.sees(stage.bench.chat(0), "echo: one", "echo: two")


@pytest.mark.benches("pond, webhook", "telegram, exclusive")
async def test_what_a_dead_gateway_was_sending_waits_for_the_end_of_its_lease(stage: Stage) -> None:
    """Nobody touches the chat before. Leases are kept by Shoal's own delivery, in the same lines for every platform:
    here it is one with keys, and one that offers nothing."""
    first = await stage.gateway(worker={"lease_s": SHORT_LEASE_S})
    await _hang_in_a_send(stage)
    await first.crash()
    died_at, session = time.monotonic(), stage.bench.session(stage.bench.chat(0))
    until_ms = float(await stage.client.command("ZSCORE", keys.outqueue(stage.bench.name), session))
    left_s = until_ms / 1000 - float((await stage.client.command("TIME"))[0])
    await stage.gateway(worker={"lease_s": SHORT_LEASE_S})
    await stage.sees(stage.bench.chat(0), "echo: one")
    assert stage.bench.calls()[-1].at - died_at >= left_s - 1.1  # the server's seconds are whole ones


async def _hang_in_a_send(stage: Stage) -> None:
    """The first gateway is in the middle of a post, without an answer."""
    chat = stage.bench.chat(0)
    stage.bench.fault(Fault(kind="hang", chat=chat))
    await stage.say(chat, "one")
    await stage.until(lambda: [call for call in stage.bench.calls() if call.kind == "send"], "the send")


async def test_a_gateway_that_ends_is_gone_within_seconds_and_leaves_nothing_undone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a call under way that is never answered."""
    monkeypatch.setattr("gateway.delivery.egress.FINISH_S", 0.3)
    first = await stage.gateway()
    await _hang_in_a_send(stage)
    assert await first.drain() < 10  # two seconds, on a machine that has time
    await stage.gateway()
    await stage.sees(stage.bench.chat(0), "echo: one")
