"""Work on many things, one after the other: a bar on the terminal, and an end between two of them.

The door to rich's bars.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import click

from shared.errors import RedisAway

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
INTERRUPTED: Final = 130


async def each(
    items: AsyncIterator[T], work: Callable[[T], Awaitable[None]], *, what: str, total: int, shown: bool
) -> bool:
    """Do `work` for every item; False when Ctrl-C ended it before the last one, which happens
    between two items only.

    A second Ctrl-C ends the process at once. With `shown` there is a bar, if somebody looks at
    standard error. Raises RedisAway, which says how far it came, and what `work` raises.
    """
    done = 0
    with stoppable() as stop, bar(what, total, shown=shown) as advance:
        try:
            async for item in items:
                if stop.is_set():
                    return False
                await work(item)
                advance(1)
                done += 1
        except RedisAway as exc:
            raise RedisAway(f"{exc}, after {done:,} of {total:,}" if total > 1 else str(exc)) from exc
    return True


async def one_by_one(items: Iterable[T]) -> AsyncIterator[T]:
    """What is there already, for `each`."""
    for item in items:
        yield item


@contextlib.contextmanager
def bar(what: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; it is told how much more was done."""
    if not shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda more: progress.advance(task, more)


@contextlib.contextmanager
def stoppable() -> Iterator[asyncio.Event]:
    """Ctrl-C sets the event, once; after that, and after this, it does what it does elsewhere."""
    import asyncio
    import signal

    loop, stop, before = asyncio.get_running_loop(), asyncio.Event(), signal.getsignal(signal.SIGINT)

    def restore() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    def on_signal() -> None:
        stop.set()
        restore()

    loop.add_signal_handler(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        if not stop.is_set():
            restore()


def end_interrupted(told: str) -> NoReturn:
    """Say how far it came, and end with the exit code of Ctrl-C."""
    click.echo(f"Interrupted: {told}", err=True)
    sys.exit(INTERRUPTED)
