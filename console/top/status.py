"""`shoal status`: problems, queues and running processes."""

from __future__ import annotations

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
    from console.top.report import as_lines, as_object, out_width, print_lines

    found = with_redis(lambda client, _: take_snapshot(client))
    wrong = problems(found)
    if as_json:
        print_json(as_object(found, wrong))
    else:
        print_lines(as_lines(found, wrong, out_width()))
    if wrong:
        sys.exit(1)
