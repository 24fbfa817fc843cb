"""`shoal dead`: messages that were given up, found by the reference that the person was shown."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import click

from shared.console.plain import clean, clean_line, counted, duration, size, table
from shared.console.redis_call import with_redis
from shared.errors import BadInput, BadRecord, Refused
from shared.ids import log_id
from shared.settings import Settings
from shared.store.client import RedisClient
from shared.store.dead_letters import DeadLetters, Letter
from shared.store.inbox import Inbox, InboxLimits

NOT_DONE: Final = 1

_as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
_show_chats = click.option("--show-chats", is_flag=True, help="Show chat ids instead of hashes of them.")


@click.group()
def dead() -> None:
    """Look after messages that were given up: list, show, replay, drop.

    REF is the reference of the apology that the person got. Letters are kept for 30 days.
    """


@dead.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--before", default="", metavar="REF", help="Only letters that are older than this one.")
@_show_chats
@_as_json
def list_(limit: int, before: str, show_chats: bool, as_json: bool) -> None:
    """List letters, newest first."""

    async def read(client: RedisClient, settings: Settings) -> tuple[list[Letter], int, bool]:
        letters = _letters(client, settings)
        start = (await _found(letters, before)).id if before else ""
        page = await letters.newest(before=start, limit=limit + 1)
        return page[:limit], await letters.count(), len(page) > limit

    page, total, more = with_redis(read)
    if as_json:
        rows = [_facts(letter, show_chats) for letter in page]
        _print_json({"letters": rows, "total": total, "before": page[-1].reference if more else None})
        return
    if not page:
        click.echo("No older letters." if before else "No dead letters.")
        return
    chat = "chat" if show_chats else "session"
    click.echo(table(["reference", "reason", "channel", chat, "age", "size"], [_row(one, show_chats) for one in page]))
    if more:
        click.echo(f"\n{total:,} in all; go on with --before {page[-1].reference}")


@dead.command()
@click.argument("ref")
@click.option("--text", "with_text", is_flag=True, help="Show what the person wrote, too.")
@_show_chats
@_as_json
def show(ref: str, with_text: bool, show_chats: bool, as_json: bool) -> None:
    """Show everything that is known of a letter."""

    async def read(client: RedisClient, settings: Settings) -> dict[str, Any]:
        letters = _letters(client, settings)
        letter = await _found(letters, ref)
        return _facts(letter, show_chats) | _contents(
            letter, await letters.record(letter) or b"", with_text, show_chats
        )

    facts = with_redis(read)
    if as_json:
        _print_json(facts)
        return
    for name, value in facts.items():
        if name != "text" and value is not None:
            click.echo(f"{name.replace('_', ' '):<11} {clean_line(str(value))}")
    if "text" in facts:
        click.echo(f"\n{clean(facts['text'])}")


@dead.command()
@click.argument("ref", required=False)
@click.option("--all", "every", is_flag=True, help="All letters that are there now, oldest first.")
@_as_json
def replay(ref: str | None, every: bool, as_json: bool) -> None:
    """Put a message back, as a new one of its chat, and forget the letter."""
    _one_or_all(ref, every)

    async def run(client: RedisClient, settings: Settings) -> tuple[int, list[tuple[Letter, str]]]:
        letters = _letters(client, settings)
        done, left = 0, []
        with _progress(await letters.count(), "replaying", shown=every) as advance:
            async for letter in _chosen(letters, ref):
                problem = await _put_back(letters, letter)
                done += problem is None
                if problem is not None:
                    left.append((letter, problem))
                advance()
        return done, left

    done, left = with_redis(run)
    if as_json:
        _print_json({"replayed": done, "left": [{"reference": one.reference, "why": why} for one, why in left]})
    elif done or not left:
        click.echo(f"Put back {counted(done, 'message')}.")
    for letter, why in left:
        click.echo(f"{letter.reference!r} was left where it is: {clean_line(why)}", err=True)
    if left:
        sys.exit(NOT_DONE)


@dead.command()
@click.argument("ref", required=False)
@click.option("--all", "every", is_flag=True, help="All letters that are there now.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_as_json
def drop(ref: str | None, every: bool, yes: bool, as_json: bool) -> None:
    """Forget a letter for good."""
    _one_or_all(ref, every)

    async def look(client: RedisClient, settings: Settings) -> int:
        letters = _letters(client, settings)
        if ref is None:
            return await letters.count()
        await _found(letters, ref)
        return 1

    async def run(client: RedisClient, settings: Settings) -> int:
        letters = _letters(client, settings)
        done = 0
        with _progress(await letters.count(), "dropping", shown=every) as advance:
            async for letter in _chosen(letters, ref):
                done += await letters.drop(letter)
                advance()
        return done

    many = with_redis(look)
    if many and not yes:
        click.confirm(f"Forget {counted(many, 'dead letter')} for good?", abort=True, err=True)
    done = with_redis(run) if many else 0
    if as_json:
        _print_json({"dropped": done})
    else:
        click.echo(f"Dropped {counted(done, 'letter')}.")


def _letters(client: RedisClient, settings: Settings) -> DeadLetters:
    limits = InboxLimits(
        cap=settings.inbox.cap, sessions_cap=settings.inbox.sessions_cap, log_days=settings.web.log_days
    )
    return DeadLetters(client, Inbox(client, limits))


def _one_or_all(ref: str | None, every: bool) -> None:
    if (ref is None) is not every:
        raise click.UsageError("Name one REF, or say --all.")


async def _found(letters: DeadLetters, ref: str) -> Letter:
    letter = await letters.find(ref)
    if letter is None:
        raise BadInput("no_letter", f"there is no dead letter {ref!r}; `shoal dead list` shows all of the last 30 days")
    return letter


async def _chosen(letters: DeadLetters, ref: str | None) -> AsyncIterator[Letter]:
    if ref is not None:
        yield await _found(letters, ref)
        return
    async for letter in letters.all():
        yield letter


async def _put_back(letters: DeadLetters, letter: Letter) -> str | None:
    """None when the message is in its inbox, else why it is not."""
    try:
        await letters.replay(letter)
    except BadRecord as exc:
        return f"its record cannot be read ({exc}); drop it, when you have seen enough of it"
    except (BadInput, Refused) as exc:
        return exc.message
    return None


def _facts(letter: Letter, show_chats: bool) -> dict[str, Any]:
    return {
        "reference": letter.reference,
        "reason": letter.reason,
        "channel": letter.channel,
        "session": log_id(letter.session),
        **({"chat": letter.chat_id} if show_chats else {}),
        "turn": letter.turn,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(letter.at_ms / 1000)),
        "size_bytes": letter.size_bytes,
        "id": letter.id,
    }


def _contents(letter: Letter, record: bytes, with_text: bool, show_chats: bool) -> dict[str, Any]:
    try:
        message = DeadLetters.message_of(letter, record)
    except BadRecord as exc:
        return {"readable": False, "problem": f"{exc.code}: {exc}"}
    return {
        "readable": True,
        "message_id": message.id,
        "sent_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(message.timestamp / 1000)),
        **({"sender": message.sender_id} if show_chats else {}),
        "thread": message.thread if show_chats else None,
        "media": len(message.media),
        "trace": message.traceparent,
        "characters": len(message.content),
        **({"text": message.content} if with_text else {}),
    }


def _row(letter: Letter, show_chats: bool) -> list[str]:
    chat = letter.chat_id if show_chats else log_id(letter.session)
    age_s = time.time() - letter.at_ms / 1000
    return [letter.reference, letter.reason, letter.channel, chat, duration(age_s), size(letter.size_bytes)]


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


@contextlib.contextmanager
def _progress(total: int, what: str, *, shown: bool) -> Iterator[Callable[[], None]]:
    """A bar on the terminal; nothing elsewhere."""
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
