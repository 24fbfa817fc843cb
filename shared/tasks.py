"""Tasks that end for certain, and waits for the first of several things."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

Value = TypeVar("Value")

AGAIN_S: Final = 0.2


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks until they are done; drop what they raise. Once is not always enough: before
    Python 3.12 a cancellation that meets the end of an awaited call or of a timeout can be
    swallowed on the way up, and the task goes on. They are done also when this call is cancelled
    meanwhile: then it raises that cancellation at the end."""
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
        except asyncio.CancelledError as exc:
            cancelled = exc
            pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        raise cancelled


async def close_all(*steps: Callable[[], Awaitable[object]]) -> None:
    """Do each step after the other, the later ones also when an earlier one fails or is cancelled;
    then raise what it raised. For the end of a block: `cancel_all` cancels again and again, so each
    of two awaits in a `finally` may be the last one that is reached."""
    async with contextlib.AsyncExitStack() as stack:
        for step in reversed(steps):
            stack.push_async_callback(step)


async def made(making: Coroutine[Any, Any, Value], undo: Callable[[Value], object]) -> Value:
    """Return what a thread makes. A thread cannot be cancelled: when this call is, it does not
    wait, and `undo` gets what is made later, which nobody else will know of."""
    task = asyncio.ensure_future(making)

    def discard(done: asyncio.Future[Value]) -> None:
        if not done.cancelled() and done.exception() is None:
            undo(done.result())

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(discard)
        raise


async def completed(task: asyncio.Future[Value]) -> Value:
    """Wait until a task is done, also when this call is cancelled meanwhile, however often: then it raises that
    cancellation at the end. For what must not be left half done, and takes a bounded time."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    return task.result()


async def until_first(*tasks: asyncio.Task[Any], timeout_s: float | None = None) -> set[asyncio.Task[Any]]:
    """Wait until one task ends, cancel the others, and return the tasks that ended by themselves.
    The set is empty after `timeout_s`. When this call is cancelled, so are all the tasks."""
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)
    return done


async def event_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event` for at most `seconds`; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
