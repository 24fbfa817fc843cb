"""`shoal status` and `shoal top`: the fleet once, or live."""

from __future__ import annotations

import json
import sys

import click

from console.output import as_json, examples, print_json


@click.command(epilog=examples("shoal status", "shoal status --json | jq .problems"))
@as_json
def status(as_json: bool) -> None:
    """Show problems, queues, workers, gateways, models and Redis.

    Exits with 1 when there is a problem: due work without a worker, people who wait too long, or a
    Redis that may lose messages.
    """
    from console.redis_call import with_redis
    from console.top.fleet_snapshot import take_snapshot
    from console.top.problems import problems
    from console.top.report import as_object, print_snapshot

    found = with_redis(take_snapshot)
    if as_json:
        print_json(as_object(found))
    else:
        print_snapshot(found)
    if problems(found):
        sys.exit(1)


@click.command(epilog=examples("shoal top", "shoal top --every 5", "shoal top --once", "shoal top --json --every 10"))
@click.option(
    "--every", "every_s", type=click.FloatRange(0.2, 3600), metavar="SECONDS", help="How often to look; 1 by default."
)
@click.option("--once", is_flag=True, help="Look once, print it and end.")
@as_json
def top(every_s: float | None, once: bool, as_json: bool) -> None:
    """Watch the fleet: problems, queues, workers, gateways, models and Redis.

    On a terminal it fills the screen until you press q, also while Redis is unavailable: p pauses,
    s sorts, arrows choose a running turn or a process, Enter opens it, l shows its log, x stops a
    turn. Elsewhere, and with --once or --json, it prints one snapshot; with --every it prints them
    repeatedly, each JSON object on its own line.
    """
    if once and every_s is not None:
        raise click.UsageError("--once looks once; leave out --every.")

    from console.redis_call import with_redis  # here: help and completion do without all of it
    from console.top.fleet_snapshot import take_snapshot
    from console.top.report import as_object, print_snapshot

    if every_s is not None or (sys.stdout.isatty() and not (once or as_json)):
        sys.exit(_watch(every_s or 1.0, as_json=as_json))
    found = with_redis(take_snapshot)
    if as_json:
        click.echo(json.dumps({"away": None, **as_object(found)}))
    else:
        print_snapshot(found)


def _watch(every_s: float, *, as_json: bool) -> int:
    import asyncio

    from console.top.fleet_snapshot import SnapshotPoller
    from console.top.report import print_observations
    from console.top.screen import TopScreen, full_screen
    from shared.settings import redis_url
    from shared.settings.trust import load_trusted

    settings = load_trusted()
    console = None if as_json else full_screen()

    async def run() -> int:
        poller = SnapshotPoller(lambda: redis_url(settings))
        try:
            if console is not None:
                folder = settings.data.dir.absolute()
                return await TopScreen(poller, console, every_s, folder).run()
            await print_observations(poller, every_s, as_json=as_json)
            return 0
        finally:
            await poller.close()

    return asyncio.run(run())
