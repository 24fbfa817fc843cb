"""The frame of a process: its event loop, the signals that end it, and its exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import SettingsError
from shared.metrics import EVENT_LOOP_LAG_SECONDS
from shared.process.stderr import unbuffer_stderr, write_stderr

EXIT_SETTINGS: Final = 2
_LAG_EVERY_S: Final = 0.25
_YOUNG: Final = 10_000
"""New objects that start a collection. A turn creates some hundreds, few of them in cycles."""


def run(main: Callable[[asyncio.Event], Awaitable[int | None]]) -> int:
    """Run `main` until it returns, and return its exit code (None is 0). The first SIGTERM or
    SIGINT sets the event that `main` gets: it then drains and returns. A second one ends the
    process at once with 128 + its number; other processes take over what was running. A
    SettingsError is printed, one line a problem, and gives code 2."""
    unbuffer_stderr()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_served(main))
    except SettingsError as exc:
        write_stderr("\n".join(str(exc).splitlines()))
        return EXIT_SETTINGS


async def _served(main: Callable[[asyncio.Event], Awaitable[int | None]]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        # The second signal: do not wait for the drain.
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, on_signal, sig)
    lag = asyncio.create_task(measure_lag(), name="event loop lag")
    try:
        return await main(stop) or 0
    finally:
        lag.cancel()


def freeze_heap() -> None:
    """Hide all that was allocated so far from the garbage collector, at the end of the start."""
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)


async def measure_lag() -> None:
    """Observe four times a second how late the event loop is, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        EVENT_LOOP_LAG_SECONDS.observe(max(0.0, loop.time() - due))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops if it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform; asyncio's own loop does the same, slower
        return None
    return uvloop.new_event_loop
