"""`shoal audit`: the audit record."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from console.output import as_json, examples, print_json, print_table, utc
from console.redis_call import redis_command
from shared.store.access.audit import LINES, Audit, AuditLine
from shared.store.client.redis_client import RedisClient

COLUMNS: Final = ("at", "kind", "outcome", "actor", "channel", "session", "turn", "about")


@click.command(epilog=examples("shoal audit", "shoal audit -n 200 --kind pairing", "shoal audit --kind exec --json"))
@click.option("-n", "--limit", type=click.IntRange(1, LINES), default=50, show_default=True, help="How many.")
@click.option("--kind", default="", metavar="WORD", help="Only access, pairing, approval, message or exec.")
@as_json
@redis_command
async def audit(client: RedisClient, limit: int, kind: str, as_json: bool) -> None:
    """Show the audit record: refusals, pairing, approvals, commands run. The newest line is
    last."""
    newest = await Audit(client).newest(LINES if kind else limit)
    lines = [line for line in newest if kind in ("", line.kind)][:limit]
    facts = [_facts(line) for line in reversed(lines)]
    if as_json:
        print_json({"lines": facts})
    elif facts:
        print_table(COLUMNS, [[one[name] or "" for name in COLUMNS] for one in facts])
    else:
        click.echo("Nothing is in the record.")


def _facts(line: AuditLine) -> dict[str, Any]:
    facts = {"at": utc(line.at_ms)} | msgspec.structs.asdict(line) | {"turn": line.turn or None}
    del facts["at_ms"]
    return facts
