"""A limit of time for calls that mostly wait for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from worker.agent.composite_hook import within

HANG_S = 5.0


async def test_a_call_that_waits_for_nothing_answers_without_a_timer() -> None:
    """Most calls of hooks are such."""
    loop = asyncio.get_running_loop()
    timers = []
    loop.call_at = lambda *args, **more: timers.append(args)  # type: ignore[method-assign, assignment]
    try:

        async def answer() -> str:
            return "done"

        assert await within(HANG_S, answer()) == "done"
    finally:
        del loop.call_at
    assert timers == []


async def test_a_call_that_waits_goes_on_where_it_was() -> None:
    """With what it waited for: a value, nothing, a fault that it handles."""
    later: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    broken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    broken.set_exception(KeyError("no"))

    async def answer() -> list[object]:
        sent: list[object] = []
        await asyncio.sleep(0)
        sent.append(await later)
        try:
            await broken
        except KeyError:
            sent.append("fault")
        await asyncio.sleep(0)
        return sent

    asyncio.get_running_loop().call_soon(later.set_result, 7)
    assert await within(HANG_S, answer()) == [7, "fault"]


async def test_a_call_that_waits_too_long_is_given_up() -> None:
    """Its own clean-up runs, and its caller reads TimeoutError."""
    cleaned = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    with pytest.raises(TimeoutError):
        await within(0.01, hang())
    assert cleaned.is_set()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_fault_goes_up(waits: bool) -> None:
    """From the first step, and from a later one."""

    async def fail() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await within(HANG_S, fail())


async def test_a_cancellation_reaches_the_call() -> None:
    """It is not taken for the end of its time."""
    inside, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(within(HANG_S, hang()))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("answers", [True, False])
async def test_what_is_no_coroutine_has_its_limit_too(answers: bool) -> None:
    """A hook may hand on a future."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    call: Awaitable[str] = future
    if answers:
        future.set_result("done")
        assert await within(HANG_S, call) == "done"
    else:
        with pytest.raises(TimeoutError):
            await within(0.01, call)
