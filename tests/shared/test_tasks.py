"""Waits for the first of several things."""

from __future__ import annotations

import asyncio

from shared.tasks import event_within, until_first


async def forever() -> None:
    await asyncio.Event().wait()


async def test_the_first_task_that_ends_cancels_the_others() -> None:
    quick, slow = asyncio.create_task(asyncio.sleep(0, "ended")), asyncio.create_task(forever())
    assert await until_first(quick, slow) == {quick}
    assert quick.result() == "ended"
    assert slow.cancelled()


async def test_a_timeout_cancels_all_tasks() -> None:
    slow = asyncio.create_task(forever())
    assert await until_first(slow, timeout_s=0.001) == set()
    assert slow.cancelled()


async def test_a_cancelled_wait_leaves_no_task_running() -> None:
    slow = asyncio.create_task(forever())
    waiting = asyncio.create_task(until_first(slow))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert slow.cancelled()


async def test_an_event_that_is_not_set_in_time_is_waited_for_no_longer() -> None:
    event = asyncio.Event()
    assert not await event_within(event, 0.001)
    event.set()
    assert await event_within(event, 60)
