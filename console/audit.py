"""`shoal audit`: the audit record."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import click

from console.examples import examples
from console.output import table
from console.redis_call import with_redis
from shared.settings import Settings
from shared.store.access.audit import LINES, Audit, AuditLine
from shared.store.client.redis_client import RedisClient

COLUMNS: Final = ("at", "kind", "outcome", "actor", "channel", "session", "turn", "about")


@click.command(epilog=examples("shoal audit", "shoal audit -n 200 --kind pairing", "shoal audit --kind exec --json"))
@click.option("-n", "--limit", type=click.IntRange(1, LINES), default=50, show_default=True, help="How many.")
@click.option("--kind", default="", metavar="WORD", help="Only access, pairing, approval, message or exec.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def audit(limit: int, kind: str, as_json: bool) -> None:
    """Show the audit record: refusals, pairing, approvals, commands run. The newest line is
    last."""

    async def load(client: RedisClient, settings: Settings) -> list[AuditLine]:
        found = await Audit(client).newest(LINES if kind else limit)
        return [line for line in found if kind in ("", line.kind)][:limit]

    facts = [_facts(line) for line in reversed(with_redis(load))]
    if as_json:
        click.echo(json.dumps({"lines": facts}, indent=2))
    elif facts:
        click.echo(table(COLUMNS, [[one[name] or "" for name in COLUMNS] for one in facts]))
    else:
        click.echo("Nothing is in the record.")


def _facts(line: AuditLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(line.at_ms / 1000)),
        "kind": line.kind,
        "outcome": line.outcome,
        "actor": line.actor,
        "channel": line.channel,
        "session": line.session,
        "turn": line.turn or None,
        "about": line.about,
    }
