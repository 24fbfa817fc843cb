"""Waiting in tests: poll until something holds, never sleep for a guess."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, overload

import pytest

LONGEST_PAUSE_S: Final = 0.1
"""Who has waited for two seconds does not notice a tenth; many checks look through all processes of the machine."""

PATIENCE_S: Final = 30.0  # for what takes a moment, on a machine with ten times the work that it can do

T = TypeVar("T")


def call_s(request: pytest.FixtureRequest) -> float:
    """How long a call may take in this test: not long if the platform hangs, else long enough for a busy machine."""
    return 0.6 if "hang" in request.node.name else 10.0


@overload
async def eventually(
    check: Callable[[], Awaitable[T]],
    within_s: float = ...,
    *,
    every_s: float = ...,
    what: str | Callable[[], str] = ...,
) -> T: ...
@overload
async def eventually(
    check: Callable[[], T], within_s: float = ..., *, every_s: float = ..., what: str | Callable[[], str] = ...
) -> T: ...
async def eventually(
    check: Callable[[], Any],
    within_s: float = PATIENCE_S,
    *,
    every_s: float = 0.01,
    what: str | Callable[[], str] = "the condition",
) -> Any:
    """Call `check` (plain or async) until it returns something true; return that.

    The pauses between two calls grow with the time that was waited, from `every_s` to LONGEST_PAUSE_S. An
    AssertionError inside `check` counts as not yet. After `within_s` seconds raises AssertionError with the last value
    or the last assertion; `what` names the thing that was waited for; a function is asked when it did not come, and can
    say what is there instead.
    """
    began = time.monotonic()
    while True:
        try:
            last = check()
            if inspect.isawaitable(last):
                last = await last
            if last:
                return last
        except AssertionError as exc:
            last = exc
        waited = time.monotonic() - began
        if waited >= within_s:
            named = what() if callable(what) else what
            raise AssertionError(f"{named} did not hold within {within_s:g} s; last: {last!r}")
        await asyncio.sleep(max(every_s, min(waited / 20, LONGEST_PAUSE_S)))


async def together(scenes: Mapping[str, Awaitable[object]]) -> None:
    """Play scenes that have nothing in common at the same time: they wait more than they compute. The first that fails
    ends all, and its name is in the error."""

    async def play(name: str, scene: Awaitable[object]) -> None:
        try:
            await scene
        except Exception as exc:
            exc.add_note(f"in the scene {name!r}")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for name, scene in scenes.items():
                group.create_task(play(name, scene))
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from None


def eventually_sync(
    check: Callable[[], T],
    within_s: float = PATIENCE_S,
    *,
    every_s: float = 0.01,
    what: str | Callable[[], str] = "the condition",
) -> T:
    """The same for a test that is no coroutine."""
    return asyncio.run(eventually(check, within_s, every_s=every_s, what=what))
