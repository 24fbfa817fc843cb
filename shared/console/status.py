"""`shoal status`: what waits, what runs, who is there, and what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from shared.console.plain import counted, duration, size, table
from shared.console.redis_call import with_redis
from shared.console.survey import Problem, Survey, problems, survey
from shared.store.presence import Presence, QueueReading
from shared.store.server import ServerFacts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def status(as_json: bool) -> None:
    """Show queues, the oldest waiting entry, workers, gateways and Redis.

    Exits with 1 when something is wrong: work is due and nobody takes it, or Redis may lose messages.
    """
    found = with_redis(lambda client, _: survey(client))
    wrong = problems(found)
    if as_json:
        click.echo(json.dumps(_plain(found, wrong), indent=2))
    else:
        click.echo("\n\n".join(_sections(found)))
        if wrong:
            click.echo()
        for problem in wrong:
            click.secho(problem.text, fg="red", bold=True)
    if wrong:
        sys.exit(1)


def _plain(found: Survey, wrong: Sequence[Problem]) -> dict[str, Any]:
    """Every key is always there, whatever its value."""
    return {
        "queues": msgspec.to_builtins(found.queues),
        "processes": [{field: getattr(one, field) for field in one.__struct_fields__} for one in found.processes],
        "redis": msgspec.to_builtins(found.redis),
        "dead_letters": found.dead_letters,
        "problems": msgspec.to_builtins(wrong),
    }


def _sections(found: Survey) -> list[str]:
    header = ["queue", "due", "running", "delayed", "oldest waits"]
    sections = [table(header, [_queue_row(one) for one in found.queues])]
    for kind in sorted({one.kind for one in found.processes}, key=lambda kind: (kind != "worker", kind)):
        columns, row = _KINDS.get(kind, _OTHER)
        rows = [[*_common(one, found.at_ms), *row(one)] for one in found.processes if one.kind == kind]
        sections.append(table([kind, "host", "pid", "up for", "state", *columns], rows))
    if not found.processes:
        sections.append("No gateway and no worker is running: start `make up`.")
    last = [_redis_line(found.redis)]
    if found.dead_letters:
        last.append(f"{counted(found.dead_letters, 'dead letter')}: see `shoal dead list`")
    return [*sections, "\n".join(last)]


def _queue_row(reading: QueueReading) -> list[str]:
    oldest = _waited(reading.oldest_due_s) if reading.due else "-"
    return [reading.name, str(reading.due), str(reading.running), str(reading.delayed), oldest]


def _waited(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _common(one: Presence, now_ms: int) -> list[str]:
    up_for = duration((now_ms - one.started_at) / 1000)
    return [one.name, one.host, str(one.pid), up_for, "draining" if one.draining else "ready"]


def _worker(one: Presence) -> list[str]:
    slots = f"{one.running} of {one.slots}" if one.slots else str(one.running)
    return [
        slots,
        one.details.get("model", "-"),
        one.details.get("queues", "-"),
        one.details.get("sandbox", "-"),
        one.version,
    ]


def _gateway(one: Presence) -> list[str]:
    said = one.details
    sockets, chats = said.get("web.sockets", "-"), said.get("web.chats", "-")
    return [said.get("web.address") or "-", sockets, chats, said.get("channels", "-"), one.version]


def _other(one: Presence) -> list[str]:
    return [", ".join(f"{name} {value}" for name, value in one.details.items()), one.version]


_OTHER: Final = (["details", "version"], _other)
_KINDS: Final = {
    "worker": (["runs", "model", "queues", "sandbox", "version"], _worker),
    "gateway": (["address", "sockets", "chats", "channels", "version"], _gateway),
}


def _redis_line(facts: ServerFacts) -> str:
    used = "?" if facts.used_bytes is None else size(facts.used_bytes)
    limit = f"of {size(facts.limit_bytes)}" if facts.limit_bytes else "no limit"
    kept = {None: "persistence unknown", False: "not persistent"}.get(facts.append_only, "")
    kept = kept or f"append-only file, fsync {facts.fsync or 'unknown'}"
    return f"{facts.product} {facts.version}: {facts.policy or 'policy unknown'}, {kept}, {used} in use ({limit})"
