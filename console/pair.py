"""`shoal pair`: access of people on chat platforms, by pairing codes."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import Any, Final

import click

from console.examples import examples
from console.output import table
from console.redis_call import with_redis
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput
from shared.settings import Settings
from shared.store.access.audit import CONSOLE
from shared.store.access.pairing import PairedPerson, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient
from shared.terminal_text import clean_line, duration

NOT_DONE: Final = 1
PATIENCE_S: Final = 5.0

_as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")


@click.group()
def pair() -> None:
    """Approve or revoke access on chat platforms: list, approve, revoke.

    CODE is the code that the bot sent to a stranger; PERSON is `channel:id`, as `list` shows it.
    """


@pair.command("list", epilog=examples("shoal pair list", "shoal pair list --json"))
@_as_json
def list_(as_json: bool) -> None:
    """List approved people and open codes."""

    async def load(client: RedisClient, settings: Settings) -> tuple[list[PairedPerson], list[PairedPerson]]:
        pairings = Pairings(client)
        return await pairings.people(), await pairings.waiting()

    people, waiting = with_redis(load)
    now_ms = SYSTEM_CLOCK.now_ms()
    if as_json:
        _print_json({"people": [_facts(one) for one in people], "waiting": [_facts(one) for one in waiting]})
        return
    if people:
        rows = [[_named(one), one.name, duration((now_ms - one.at) / 1000), one.by] for one in people]
        click.echo(table(["person", "calls themselves", "let in for", "by"], rows))
    else:
        click.echo("Nobody was let in by a code.")
    if waiting:
        rows = [[_named(one), one.name, duration((one.expires_at - now_ms) / 1000)] for one in waiting]
        click.echo("\n" + table(["waits", "calls themselves", "code good for"], rows))


@pair.command(epilog=examples("shoal pair approve K7QM-3XTD"))
@click.argument("code")
@_as_json
def approve(code: str, as_json: bool) -> None:
    """Approve the person who got this code. Their chat gets a notice."""
    request = secrets.token_hex(16)

    async def run(client: RedisClient, settings: Settings) -> PairedPerson:
        line = let_in_line(SYSTEM_CLOCK.now_ms())
        return await Pairings(client).approve(code, line, by=CONSOLE, request=request, retry_for_s=PATIENCE_S)

    person = with_redis(run)
    if as_json:
        _print_json(_facts(person))
    else:
        name = f" ({clean_line(person.name)})" if person.name else ""
        click.echo(f"Let in: {clean_line(_named(person))}{name}.")


@pair.command(epilog=examples("shoal pair revoke telegram:123456789"))
@click.argument("person")
@_as_json
def revoke(person: str, as_json: bool) -> None:
    """Revoke access, from the next message on. Schedules of the person's chat are paused."""
    channel, colon, sender = person.partition(":")
    if not (channel and colon and sender):
        raise BadInput("bad_person", f"{person!r} names nobody; write channel:id, as `shoal pair list` shows it")

    async def run(client: RedisClient, settings: Settings) -> bool:
        return await Pairings(client).revoke(channel, sender, by=CONSOLE)

    done = with_redis(run)
    if as_json:
        _print_json({"person": person, "revoked": done})
    elif done:
        click.echo(f"Not let in any more: {clean_line(person)}.")
    else:
        click.echo(f"Nobody of this id was let in by a code: {clean_line(person)}", err=True)
    if not done:
        sys.exit(NOT_DONE)


def _named(one: PairedPerson) -> str:
    return f"{one.channel}:{one.sender}"


def _facts(one: PairedPerson) -> dict[str, Any]:
    return {
        "person": _named(one),
        "channel": one.channel,
        "id": one.sender,
        "name": one.name,
        "let_in_at": _time(one.at),
        "by": one.by or None,
        **({} if one.by else {"code_until": _time(one.expires_at)}),
    }


def _time(at_ms: int) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000)) if at_ms else None


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
