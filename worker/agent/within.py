"""A time limit for calls that mostly do not wait, and whose cancellation one is."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def within(limit_s: float, call: Awaitable[T]) -> T:
    """Await a call and return its result. Raises TimeoutError after more than `limit_s` of waiting.
    Most calls of hooks never wait, and the timer of `asyncio.timeout` costs several times what they
    do. So a coroutine makes its first step without one. A timer could not stop that step anyway."""
    if not isinstance(call, types.CoroutineType):
        async with asyncio.timeout(limit_s):
            return await call
    # Run the coroutine up to its first real wait. It may already be done by then, as most are.
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    async with asyncio.timeout(limit_s):
        return await _resume(call, waits_for)


@types.coroutine
def _resume(call: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Continue a coroutine that has begun and waits, as `await` does with a new one."""
    while True:
        try:
            came = yield waits_for
        except BaseException as exc:  # a cancellation must reach the coroutine, as with await
            step = partial(call.throw, exc)
        else:
            step = partial(call.send, came)
        try:
            waits_for = step()
        except StopIteration as done:
            answer: T = done.value
            return answer


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, and not only awaited a cancelled one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
