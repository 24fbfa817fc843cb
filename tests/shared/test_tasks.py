"""Waits for the first of several things, and for the end of one."""

from __future__ import annotations

import asyncio

import pytest

from shared.tasks import completed, event_within, until_first


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


async def test_what_must_be_completed_is_waited_for_however_often_the_wait_is_cancelled() -> None:
    finish = asyncio.Event()
    inner = asyncio.create_task(finish.wait())
    waiting = asyncio.create_task(completed(inner))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert inner.result() is True


async def test_what_is_completed_gives_its_result_or_its_error() -> None:
    assert await completed(asyncio.create_task(asyncio.sleep(0, "ended"))) == "ended"
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        await completed(failed)
