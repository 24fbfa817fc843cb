"""Tasks that end for certain, and waits for the first of several things."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final, TypeVar

Value = TypeVar("Value")

AGAIN_S: Final = 0.2


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they are done; drop what they raise. Once is not always enough: before
    Python 3.12 a cancellation that meets the end of an awaited call or of a timeout can be
    swallowed on the way up, and the task goes on."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)


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
