"""Loop over many items with a progress bar, by rich; Ctrl-C stops between two items."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from console.output import print_json
from shared.errors import RedisAway

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def run_each(
    items: AsyncIterator[T] | Iterable[T],
    work: Callable[[T], Awaitable[None]],
    *,
    what: str,
    total: int,
    shown: bool,
) -> bool:
    """Run `work` for every item. Return False when Ctrl-C stopped it, always between two items.

    A second Ctrl-C ends the process at once. `shown` shows a bar if standard error is a terminal.
    Raises RedisAway, which says how far it got, and whatever `work` raises.
    """
    done = 0
    with stoppable() as stop, bar(what, shown=shown) as report:
        report(0, total)
        try:
            async for item in items if isinstance(items, AsyncIterator) else _each(items):
                if stop.is_set():
                    return False
                await work(item)
                done += 1
                report(done, total)
        except RedisAway as exc:
            raise RedisAway(f"{exc}, after {done:,} of {total:,}" if total > 1 else str(exc)) from exc
    return True


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


@contextlib.contextmanager
def bar(what: str, *, shown: bool, least: int = 0) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error if it is a terminal, and for at least `least` items. Yields a
    function that takes how many are done, and of how many."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what)

    def report(done: int, total: int) -> None:
        if total >= least:
            progress.start()
            progress.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        progress.stop()


@contextlib.contextmanager
def stoppable() -> Iterator[asyncio.Event]:
    """Let the first Ctrl-C set the event; later ones, and those after the block, act as usual."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    before = signal.getsignal(signal.SIGINT)

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


def end(
    whole: bool, facts: dict[str, object], text: str, how_far: str, left: Sequence[str] = (), *, as_json: bool
) -> None:
    """Report a loop: as JSON its facts and whether it was interrupted, else the text, if any. Then
    a line for each item that was left, and after an interruption how far it came. Ends the process
    with an exit code for either; else returns."""
    if as_json:
        print_json(facts | {"interrupted": not whole})
    elif text:
        click.echo(text)
    for line in left:
        click.echo(line, err=True)
    if not whole:
        click.echo(f"Interrupted: {how_far}", err=True)
        sys.exit(130)
    if left:
        sys.exit(1)
