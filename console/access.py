"""`shoal pair` and `shoal audit`: access of people by pairing codes, and the audit record."""

from __future__ import annotations

import secrets
import sys
from typing import Any

import click
from msgspec.structs import asdict

from console.output import as_json, examples, limit, print_json, print_table, utc
from console.redis_call import redis_command
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput
from shared.store.access.audit import CONSOLE, LINES, Audit
from shared.store.access.pairing import PairedPerson, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient, server_ms
from shared.terminal_text import clean_line, duration


@click.group()
def pair() -> None:
    """Approve or revoke access on chat platforms: list, approve, revoke.

    CODE is the code that the bot sent to a stranger; PERSON is `channel:id`, as `list` shows it.
    """


@pair.command("list", epilog=examples("shoal pair list", "shoal pair list --json"))
@as_json
@redis_command
async def list_(client: RedisClient, as_json: bool) -> None:
    """List approved people and open codes."""
    people = await Pairings(client).people()
    waiting = await Pairings(client).waiting()
    now_ms = server_ms(await client.command("TIME"))  # codes expire by this clock
    if as_json:
        print_json({"people": list(map(_facts, people)), "waiting": list(map(_facts, waiting))})
        return
    let_in = [_row("person", one, "let in for", now_ms - one.at) | {"by": one.by} for one in people]
    print_table(let_in, "Nobody was let in by a code.")
    if waiting:
        click.echo()
        rows = [_row("waits", one, "code good for", one.expires_at - now_ms) for one in waiting]
        print_table(rows, "")


@pair.command(epilog=examples("shoal pair approve K7QM-3XTD"))
@click.argument("code")
@as_json
@redis_command
async def approve(client: RedisClient, code: str, as_json: bool) -> None:
    """Approve the person who got this code. Their chat gets a notice."""
    line = let_in_line(SYSTEM_CLOCK.now_ms())
    request = secrets.token_hex(16)
    person = await Pairings(client).approve(code, line, by=CONSOLE, request=request, retry_for_s=5)
    if as_json:
        print_json(_facts(person))
    else:
        name = f" ({clean_line(person.name)})" if person.name else ""
        click.echo(f"Let in: {clean_line(_named(person))}{name}.")


@pair.command(epilog=examples("shoal pair revoke telegram:123456789"))
@click.argument("person")
@as_json
@redis_command
async def revoke(client: RedisClient, person: str, as_json: bool) -> None:
    """Revoke access, from the next message on. Schedules of the person's chat are paused."""
    channel, colon, sender = person.partition(":")
    if not (channel and colon and sender):
        raise BadInput("bad_person", f"{person!r} names nobody; write channel:id, as `shoal pair list` shows it")
    done = await Pairings(client).revoke(channel, sender, by=CONSOLE)
    if as_json:
        print_json({"person": person, "revoked": done})
    elif done:
        click.echo(f"Not let in any more: {clean_line(person)}.")
    else:
        click.echo(f"Nobody of this id was let in by a code: {clean_line(person)}", err=True)
    if not done:
        sys.exit(1)


def _row(title: str, one: PairedPerson, span: str, span_ms: float) -> dict[str, object]:
    return {title: _named(one), "calls themselves": one.name, span: duration(span_ms / 1000)}


def _named(one: PairedPerson) -> str:
    return f"{one.channel}:{one.sender}"


def _facts(one: PairedPerson) -> dict[str, Any]:
    return {
        "person": _named(one),
        "channel": one.channel,
        "id": one.sender,
        "name": one.name,
        "let_in_at": utc(one.at) if one.at else None,
        "by": one.by or None,
        **({} if one.by else {"code_until": utc(one.expires_at) if one.expires_at else None}),
    }


@click.command(epilog=examples("shoal audit", "shoal audit -n 200 --kind pairing", "shoal audit --kind exec --json"))
@limit(50, LINES, "-n")
@click.option("--kind", default="", metavar="WORD", help="Only access, pairing, approval, message or exec.")
@as_json
@redis_command
async def audit(client: RedisClient, limit: int, kind: str, as_json: bool) -> None:
    """Show the audit record: refusals, pairing, approvals, commands run. The newest is last."""
    newest = await Audit(client).newest(LINES if kind else limit)
    facts: list[dict[str, Any]] = []
    for line in reversed([one for one in newest if kind in ("", one.kind)][:limit]):
        facts.append({"at": utc(line.at_ms)} | asdict(line) | {"turn": line.turn or None})
        del facts[-1]["at_ms"]
    if as_json:
        print_json({"lines": facts})
    else:
        rows = [{name: value or "" for name, value in one.items() if name != "id"} for one in facts]
        print_table(rows, "Nothing is in the record.")
