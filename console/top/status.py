"""`shoal status`: what is wrong, what waits, what runs, and who is there."""

from __future__ import annotations

import sys

import click

from console.examples import examples
from console.output import as_json, print_json


@click.command(epilog=examples("shoal status", "shoal status --json | jq .problems"))
@as_json
def status(as_json: bool) -> None:
    """Show what is wrong, who waits, queues, workers, gateways, models and Redis.

    Exits with 1 when something is wrong: nobody takes what is due, people wait too long, or Redis
    may lose messages.
    """
    from console.redis_call import with_redis
    from console.top.fleet_snapshot import take_snapshot
    from console.top.problems import problems
    from console.top.report import as_lines, as_object, out_width, print_lines

    found = with_redis(lambda client, _: take_snapshot(client))
    wrong = problems(found)
    if as_json:
        print_json(as_object(found, wrong))
    else:
        print_lines(as_lines(found, wrong, out_width()))
    if wrong:
        sys.exit(1)
