"""Waits for the first of several things, for the end of one, and ends that leave nothing open."""

from __future__ import annotations

import asyncio

import pytest

from shared.tasks import cancel_all, close_all, completed, event_within, made, until_first


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


async def cancelled_often(task: asyncio.Task[object]) -> None:
    """Cancel a task in each of the next turns of the event loop, as those who end it do again and again."""
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()


async def test_tasks_are_done_also_when_their_cancellation_is_cancelled() -> None:
    """Else they outlive the one who started them, with all that they hold."""
    finish = asyncio.Event()

    async def slow_end() -> None:
        try:
            await forever()
        finally:
            await completed(asyncio.create_task(finish.wait()))

    inner = asyncio.create_task(slow_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(cancel_all([inner]))
    await cancelled_often(ending)
    assert not ending.done()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert inner.done()


async def test_of_several_things_to_close_each_is_closed_however_often_this_is_cancelled() -> None:
    done: list[str] = []

    async def close(name: str) -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            done.append(name)

    async def broken() -> None:
        raise KeyError("a bug")

    closing = asyncio.create_task(close_all(lambda: close("a"), broken, lambda: close("b"), lambda: close("c")))
    await cancelled_often(closing)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert done == ["a", "b", "c"]
    with pytest.raises(KeyError):
        await close_all(broken, lambda: close("d"))
    assert done[-1] == "d"


async def test_what_is_made_for_a_cancelled_call_is_undone() -> None:
    """Also when it is made at that very moment."""
    undone: list[str] = []
    assert await made(asyncio.sleep(0, "mine"), undone.append) == "mine"
    finish = asyncio.Event()

    async def make() -> str:
        await finish.wait()
        return "late"

    for at_once in (False, True):
        finish.clear()
        making = asyncio.create_task(made(make(), undone.append))
        await asyncio.sleep(0)
        if at_once:
            finish.set()
            await asyncio.sleep(0)
        making.cancel()
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await making
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert undone == ["late", "late"]
