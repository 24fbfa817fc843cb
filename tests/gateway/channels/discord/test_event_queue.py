"""Events chat by chat, and how far all of them are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.discord.event_queue import MAX_FAULTS, MAX_PENDING, EventQueue, EventWindow
from gateway.platform.protocol import ChannelBroken, NotAccepted
from tests.helpers.wait import eventually


@pytest.fixture
async def intake() -> AsyncIterator[EventQueue]:
    made = EventQueue()
    yield made
    await made.close()


@given(st.permutations(range(1, 9)), st.integers(0, 8))
def test_a_number_is_done_when_all_up_to_it_are(order: list[int], many: int) -> None:
    """In whatever order they are taken, and with events between them that say nothing."""
    window = EventWindow(0, 0)
    marks = {}
    for number in range(1, 9):
        marks[number] = window.append(2 * number, at_ms=100 * number)
        window.skip(2 * number + 1)
    for number in order[:many]:
        window.complete(marks[number])
    whole = next((number for number in range(1, 9) if number not in order[:many]), 9)
    assert window.seq == (2 * whole - 1 if whole > 1 else 0)
    assert window.since_ms == 100 * (whole - 1)


def test_what_says_nothing_costs_nothing_behind_what_waits() -> None:
    """A busy server may say much while one chat waits."""
    window = EventWindow(0, 5)
    waits = window.append(1)
    for seq in range(2, 10_000):
        window.skip(seq)
    assert len(window._pending) == 2
    assert (window.seq, window.since_ms) == (0, 5)
    window.complete(waits)
    assert window.seq == 9_999


async def test_a_chat_keeps_its_order_and_no_other_waits_for_it(intake: EventQueue) -> None:
    """Also when something of it has to be tried again."""
    went, done = asyncio.Event(), list[str]()
    tried = 0

    async def first() -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise NotAccepted("not now")
        await went.wait()

    async def other() -> None:
        went.set()

    await intake.submit("a", first, partial(done.append, "first"))
    await intake.submit("a", other, partial(done.append, "second"))
    await intake.submit("b", other, partial(done.append, "other"))
    await eventually(lambda: done == ["other", "first", "second"], within_s=30)


async def test_what_breaks_our_code_every_time_is_passed_over(
    intake: EventQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event must not stop a chat for ever."""
    monkeypatch.setattr("gateway.channels.discord.event_queue.FIRST_S", 0.001)
    tried, done = 0, list[str]()

    async def breaks() -> None:
        nonlocal tried
        tried += 1
        raise KeyError("bug")

    await intake.submit("a", breaks, partial(done.append, "taken"))
    await eventually(lambda: done == ["taken"], within_s=30)
    assert tried == MAX_FAULTS


async def test_a_broken_channel_leaves_its_event_pending(intake: EventQueue) -> None:
    """It is told, and what is behind it waits."""
    done = list[str]()

    async def broken() -> None:
        raise ChannelBroken("mend it")

    async def fine() -> None:
        pass

    await intake.submit("a", broken, partial(done.append, "broken"))
    await intake.submit("a", fine, partial(done.append, "fine"))
    await intake.broken.wait()
    assert str(intake.failure) == "mend it"
    await intake.finish(0.01)
    assert done == []


async def test_with_very_many_events_under_way_no_more_are_read(intake: EventQueue) -> None:
    """The platform holds them; what takes no room may still begin."""
    held = asyncio.Event()

    async def waits() -> None:
        await held.wait()

    for number in range(MAX_PENDING):
        await intake.submit(str(number), waits, lambda: None)
    more = asyncio.create_task(intake.submit("more", waits, lambda: None))
    await asyncio.wait({more}, timeout=0.05)
    assert not more.done()
    intake.start("longer", waits)
    held.set()
    await more
    await intake.finish(30)
    assert not intake.working
