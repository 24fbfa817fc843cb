"""Programs that fail in every way, and gateways that die: no event is lost, none has two ids or two forms."""

from __future__ import annotations

import asyncio
import email.utils
import time
from pathlib import Path

import pytest

from gateway.webhooks.endpoints import REFUSALS
from shared.clock import SYSTEM_CLOCK
from shared.metrics import WEBHOOKS
from shared.settings import OutgoingWebhook, Secret
from shared.store import keys
from shared.store.delivery.deliveries import DROPPED_AT_ONCE
from tests.gateway.webhooks.stage import SECRET, Stage, outgoing
from tests.gateway.webhooks.test_outgoing import _nothing_waits
from tests.helpers.wait import eventually
from tests.helpers.web_server import Asked, Send, redirect, reply

PLAIN = "text/plain"


def of_turns(stage: Stage) -> list[int]:
    """The turns of which the program was told, each once, in the order of the first call."""
    return list(dict.fromkeys(event["data"]["turn"] for event in stage.program.events))


def assert_equal_forms(stage: Stage) -> None:
    """Each id has one body, each event one id; every call is signed anew."""
    bodies: dict[str, set[bytes]] = {}
    for asked in stage.program.calls:
        bodies.setdefault(asked.headers["webhook-id"], set()).add(asked.body)
    assert {len(found) for found in bodies.values()} == {1}
    assert len({next(iter(found)) for found in bodies.values()}) == len(bodies)


@pytest.mark.parametrize("status", [500, 503, 429, 408])
async def test_a_program_that_cannot_now_is_called_again(redis_url: str, tmp_path: Path, status: int) -> None:
    """In order, with the same id and the same bytes."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        s.program.answers = [reply(status=status), reply(status=status)]
        await s.turn()
        await s.turn()
        await s.program.called(4)
        await eventually(lambda: _nothing_waits(s))
        assert of_turns(s) == [1, 2]
        assert s.program.ids[0] == s.program.ids[1] == s.program.ids[2] != s.program.ids[3]
        assert_equal_forms(s)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_the_time_that_a_program_names_is_waited_for(redis_url: str, tmp_path: Path, form: str) -> None:
    """Retry-After, as a number or as a date."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        named = "2" if form == "seconds" else email.utils.formatdate(time.time() + 3, usegmt=True)
        s.program.answers = [reply(status=503, Retry_After=named)]
        await s.turn()
        await s.program.called(1)
        began = SYSTEM_CLOCK.monotonic()
        await s.program.called(2)
        assert SYSTEM_CLOCK.monotonic() - began > 1.4


async def test_a_program_that_dies_gets_it_all_later(redis_url: str, tmp_path: Path) -> None:
    """It hangs up before an answer, in the middle of one, or is not there."""

    async def hang_up(_: Asked, send: Send) -> None:
        raise ConnectionError

    async def break_off(_: Asked, send: Send) -> None:
        await send(b"HTTP/1.1 20")
        raise ConnectionError

    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        s.program.answers = [hang_up, break_off]
        for _ in range(3):
            await s.turn()
        await s.program.called(5)
        await eventually(lambda: _nothing_waits(s), within_s=30)
        assert of_turns(s) == [1, 2, 3]
        assert_equal_forms(s)


async def test_a_program_that_hangs_holds_up_no_other(redis_url: str, tmp_path: Path) -> None:
    """Each endpoint is a chat of its own; a call ends after its time, and is made again with the same id."""
    hang = asyncio.Event()

    async def wait(_: Asked, send: Send) -> None:
        await hang.wait()

    async with outgoing(redis_url, tmp_path) as s:
        s.program.web.pages["/slow"] = wait
        slow = OutgoingWebhook(url=s.program.web.url("/slow"), secret=Secret(SECRET), allow_private=True)
        s.settings.webhooks.out["slow"] = slow
        async with s.gateway():
            await s.turn()
            await s.program.called(1)
            await s.turn()
            await s.program.called(2)
            assert len([asked for asked in s.program.web.asked if asked.target == "/slow"]) == 1
            hang.set()


async def test_a_long_answer_is_not_read_to_its_end(redis_url: str, tmp_path: Path) -> None:
    """Its status counts; what follows has limits of bytes and time."""

    async def endless(_: Asked, send: Send) -> None:
        await send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
        for _number in range(10_000):
            await send(b"x" * 65536)

    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        s.program.answers = [endless]
        await s.turn()
        await s.turn()
        await s.program.called(2)
        await eventually(lambda: _nothing_waits(s))
        assert of_turns(s) == [1, 2]
        assert len(s.program.calls) == 2


async def test_410_closes_an_endpoint_until_a_gateway_starts(redis_url: str, tmp_path: Path) -> None:
    """What waited are dead letters, which can be replayed under the same ids; what happens then is not told."""
    async with outgoing(redis_url, tmp_path) as s:
        async with s.gateway():
            s.program.answers = [reply(status=410)]
            closed = WEBHOOKS.labels("out", "closed")
            await s.turn()
            await s.program.called(1)
            await eventually(lambda: _nothing_waits(s))
            [letter] = await s.letters()
            assert (letter.reason, letter.session) == ("chat_closed", "hook:erp")
            before = closed._value.get()
            await s.turn()
            await eventually(lambda: closed._value.get() == before + 1)
            assert len(s.program.calls) == 1
        async with s.gateway():
            assert await s.dead.replay(letter)
            await s.turn()
            await s.program.called(3)
            assert of_turns(s) == [1, 3]
            assert s.program.ids[0] == s.program.ids[1]
            assert_equal_forms(s)


async def test_many_that_waited_for_a_closed_endpoint_are_all_letters(redis_url: str, tmp_path: Path) -> None:
    """Some at a time."""
    async with outgoing(redis_url, tmp_path) as s:
        async with s.gateway():
            pass
        many = DROPPED_AT_ONCE + 5
        for _ in range(many):
            await s.turn()
        s.program.answers = [reply(status=410) for _ in range(many)]
        async with s.gateway():
            await eventually(lambda: _nothing_waits(s))
            assert len(await s.letters()) == many
            assert len(s.program.calls) == 2


@pytest.mark.parametrize("status", [302, 404])
async def test_an_answer_that_refuses_becomes_a_letter_in_the_end(redis_url: str, tmp_path: Path, status: int) -> None:
    """Nobody is followed to where a redirect leads; the next event is sent, and the letter can be replayed."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        s.program.web.pages["/elsewhere"] = reply()
        target = s.program.web.url("/elsewhere")
        s.program.answers = [redirect(target, status) if status < 400 else reply(status=status)] * REFUSALS
        await s.turn()
        await s.turn()
        await s.program.called(REFUSALS + 1)
        await eventually(lambda: _nothing_waits(s))
        [letter] = await s.letters()
        assert letter.reason == "undeliverable"
        assert letter.why == f"it answered {status}"
        assert [asked for asked in s.program.web.asked if asked.target == "/elsewhere"] == []
        assert await s.dead.replay(letter)
        await s.program.called(REFUSALS + 2)
        assert s.program.ids[-1] == s.program.ids[0]
        assert_equal_forms(s)


async def test_a_gateway_that_ends_within_a_call_leaves_it_to_the_next(redis_url: str, tmp_path: Path) -> None:
    """The program may have it: it comes again with its id."""
    hang = asyncio.Event()

    async def wait(_: Asked, send: Send) -> None:
        await hang.wait()

    async with outgoing(redis_url, tmp_path) as s:
        s.program.answers = [wait]
        async with s.gateway():
            await s.turn()
            await s.program.called(1)
        async with s.gateway():
            await s.program.called(2)
            await eventually(lambda: _nothing_waits(s))
            assert s.program.ids[0] == s.program.ids[1]
            assert_equal_forms(s)
        hang.set()


async def test_a_broken_stream_stops_no_delivery(redis_url: str, tmp_path: Path) -> None:
    """A key that somebody filled with something else costs the events of that time, and no turn."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        await s.client.command("SET", keys.NOTICES, "x")
        await s.turn()
        await s.client.command("DEL", keys.NOTICES)
        await s.client.command("XADD", keys.NOTICES, "*", "n", "x", "s", "web:ann/a")
        await s.client.command("XADD", keys.NOTICES, "*", "s", "web:ann/a", "n", "1", "q", "1", "w", "\xff{")
        await s.turn()
        await s.program.called(1)
        assert of_turns(s) == [2]
