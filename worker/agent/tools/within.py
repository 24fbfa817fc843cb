"""A limit of time that sets a timer only for what has to wait."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def within(limit_s: float, call: Awaitable[T]) -> T:
    """What a call answers. Raises TimeoutError when it has waited for longer than `limit_s`.

    Most calls of hooks wait for nothing, and the timer of `asyncio.timeout` costs several times
    what they do: so a coroutine makes its first step without one. No timer could stop that step
    anyway.
    """
    if not isinstance(call, types.CoroutineType):
        async with asyncio.timeout(limit_s):
            return await call
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    async with asyncio.timeout(limit_s):
        return await _resume(call, waits_for)


@types.coroutine
def _resume(call: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that waits for something, as `await` does with one that has not
    begun."""
    while True:
        try:
            came = yield waits_for
        except BaseException as exc:
            step = partial(call.throw, exc)
        else:
            step = partial(call.send, came)
        try:
            waits_for = step()
        except StopIteration as done:
            answer: T = done.value
            return answer
