"""`shoal status`: what waits, what runs, who is there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from shared.settings import load, redis_url
from shared.store.client import RedisClient
from shared.store.presence import Presence, QueueReading, present, read_queue

_QUEUES: Final = ("turns", "jobs")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def status(as_json: bool) -> None:
    """Show queues, the oldest waiting entry, workers and gateways. Exits with 1 when Redis is away."""
    queues, processes = asyncio.run(_read(redis_url(load())))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins({"queues": queues, "processes": processes}), indent=2))
        return
    click.echo(_table(["queue", "due", "running", "delayed", "oldest waits"], [_queue_row(one) for one in queues]))
    click.echo()
    if not processes:
        click.echo("No gateway and no worker is running: start `make up`.")
        return
    now_ms = time.time_ns() // 1_000_000
    header = ["process", "name", "host", "pid", "up for", "runs", "state", "details"]
    click.echo(_table(header, [_process_row(one, now_ms) for one in processes]))


async def _read(url: str) -> tuple[list[QueueReading], list[Presence]]:
    client = RedisClient(url, connections=1, name="shoal-console")
    try:
        return [await read_queue(client, name) for name in _QUEUES], await present(client)
    finally:
        await client.close()


def _queue_row(reading: QueueReading) -> list[str]:
    oldest = f"{reading.oldest_due_s:.1f} s" if reading.due else "-"
    return [reading.name, str(reading.due), str(reading.running), str(reading.delayed), oldest]


def _process_row(one: Presence, now_ms: int) -> list[str]:
    slots = f"{one.running} of {one.slots}" if one.slots else "-"
    details = ", ".join(f"{key} {value}" for key, value in one.details.items())
    state = "draining" if one.draining else "ready"
    up_for = _duration(max(0, now_ms - one.started_at) // 1000)
    return [one.kind, one.name, one.host, str(one.pid), up_for, slots, state, details]


def _duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    widths = [max(len(str(row[at])) for row in (header, *rows)) for at in range(len(header))]
    lines = (
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)
