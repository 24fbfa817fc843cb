"""`shoal top`: the fleet, live."""

from __future__ import annotations

import sys
from typing import Final

import click

from console.output import as_json, examples

EVERY_S: Final = 1.0


@click.command(epilog=examples("shoal top", "shoal top --every 5", "shoal top --once", "shoal top --json --every 10"))
@click.option(
    "--every", "every_s", type=click.FloatRange(0.2, 3600), metavar="SECONDS", help="How often to look; 1 by default."
)
@click.option("--once", is_flag=True, help="Look once, print it and end.")
@as_json
def top(every_s: float | None, once: bool, as_json: bool) -> None:
    """Watch the fleet: problems, queues, workers, gateways, models and Redis.

    On a terminal it fills the screen until you press q (p pauses, s sorts), also while Redis is
    unavailable. Elsewhere, and with --once or --json, it prints one snapshot; with --every it
    prints them repeatedly, each JSON object on its own line.
    """
    if once and every_s is not None:
        raise click.UsageError("--once looks once; leave out --every.")

    from console.top.printing import print_once  # here: help and completion do without all of it

    if every_s is not None or (sys.stdout.isatty() and not (once or as_json)):
        sys.exit(_watch(every_s or EVERY_S, as_json=as_json))
    print_once(as_json=as_json)


def _watch(every_s: float, *, as_json: bool) -> int:
    import asyncio

    from console.top.poller import SnapshotPoller
    from console.top.printing import print_looks
    from console.top.screen import screen, show
    from shared.settings import load, redis_url

    settings = load()
    console = None if as_json else screen()

    async def run() -> int:
        watch = SnapshotPoller(lambda: redis_url(settings))
        try:
            if console is not None:
                return await show(watch, console, every_s)
            await print_looks(watch, every_s, as_json=as_json)
            return 0
        finally:
            await watch.close()

    return asyncio.run(run())
