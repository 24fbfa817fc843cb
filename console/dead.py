"""`shoal dead`: messages that were given up, and replies that were not delivered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from console import completion
from console.output import (
    as_json,
    examples,
    limit,
    print_facts,
    print_json,
    print_table,
    show_chats,
    utc,
    without_asking,
)
from console.progress import end, run_each
from console.redis_call import redis_command, with_redis
from shared.errors import BadInput, BadRecord, Refused
from shared.ids import log_id
from shared.terminal_text import clean, clean_line, counted, duration, size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shared.store.client.redis_client import RedisClient
    from shared.store.turns.dead_letters import DeadLetterEntry, DeadLetters


@click.group()
def dead() -> None:
    """Manage dead letters: list, show, replay, drop.

    A dead letter is a message that was given up or a reply that could not be delivered. REF is the
    reference in the apology that the person got. Letters are kept for 30 days.
    """


@dead.command("list", epilog=examples("shoal dead list", "shoal dead list --limit 5 --before ab12cd34"))
@limit(20, 1000)
@click.option(
    "--before", default="", metavar="REF", shell_complete=completion.letters, help="Only letters older than this one."
)
@show_chats
@as_json
@redis_command
async def list_(client: RedisClient, limit: int, before: str, show_chats: bool, as_json: bool) -> None:
    """List letters, newest first."""
    letters = _letters(client)
    start = (await _found(letters, before)).id if before else ""
    page = await letters.newest(before=start, limit=limit + 1)
    total = await letters.count()
    more = len(page) > limit
    page = page[:limit]
    if as_json:
        rows = [_facts(letter, show_chats) for letter in page]
        following = page[-1].reference if more else None
        print_json({"letters": rows, "total": total, "before": following})
        return
    none = "No older letters." if before else "No dead letters."
    print_table([_row(one, show_chats) for one in page], none)
    if more:
        click.echo(f"\n{total:,} in all; go on with --before {page[-1].reference}")


@dead.command(epilog=examples("shoal dead show ab12cd34", "shoal dead show ab12cd34 --text"))
@click.argument("ref", shell_complete=completion.letters)
@click.option("--text", "with_text", is_flag=True, help="Also show what the person wrote.")
@show_chats
@as_json
@redis_command
async def show(client: RedisClient, ref: str, with_text: bool, show_chats: bool, as_json: bool) -> None:
    """Show a letter in full."""
    letters = _letters(client)
    letter = await _found(letters, ref)
    record = await letters.read_record(letter) or b""
    facts = _facts(letter, show_chats) | _contents(letter, record, with_text, show_chats)
    text = None if as_json else facts.pop("text", None)
    print_facts(facts if as_json else _for_people(facts), as_json=as_json, labels={"at": "given up at"})
    if text is not None:
        click.echo(f"\n{clean(text)}")


@dead.command(epilog=examples("shoal dead replay ab12cd34", "shoal dead replay --all"))
@click.argument("ref", required=False, shell_complete=completion.letters)
@click.option("--all", "every", is_flag=True, help="All current letters, oldest first.")
@as_json
@redis_command
async def replay(client: RedisClient, ref: str | None, every: bool, as_json: bool) -> None:
    """Put a message back into its chat as a new one, and delete the letter. A reply that a platform
    refused is sent again, after the replies that already wait for that chat.

    Ctrl-C stops between two letters."""
    _one_or_all(ref, every)
    letters = _letters(client)
    total = await letters.count()
    done = 0
    left: list[dict[str, str]] = []

    async def put_back(letter: DeadLetterEntry) -> None:
        nonlocal done
        try:
            await letters.replay(letter)
            done += 1
        except BadRecord as exc:
            why = f"its record cannot be read ({exc}); drop it, when you have seen enough of it"
            left.append({"reference": letter.reference, "why": why})
        except (BadInput, Refused) as exc:
            left.append({"reference": letter.reference, "why": exc.message})

    chosen = _chosen(letters, ref)
    shown = every and not as_json
    whole = await run_each(chosen, put_back, what="replaying", total=total, shown=shown)
    text = f"Put back {counted(done, 'message')}." if done or not left else ""
    lines = [f"{one['reference']!r} was left where it is: {clean_line(one['why'])}" for one in left]
    how_far = f"{done} of {counted(total, 'letter')} put back, the others are where they were."
    end(whole, {"replayed": done, "left": left}, text, how_far, lines, as_json=as_json)


@dead.command(epilog=examples("shoal dead drop ab12cd34", "shoal dead drop --all --yes"))
@click.argument("ref", required=False, shell_complete=completion.letters)
@click.option("--all", "every", is_flag=True, help="All current letters.")
@without_asking
@as_json
def drop(ref: str | None, every: bool, yes: bool, as_json: bool) -> None:
    """Delete a letter."""
    _one_or_all(ref, every)
    done = 0

    async def look(client: RedisClient) -> int:
        letters = _letters(client)
        if ref is None:
            return await letters.count()
        await _found(letters, ref)
        return 1

    async def run(client: RedisClient) -> bool:
        letters = _letters(client)

        async def forget(letter: DeadLetterEntry) -> None:
            nonlocal done
            done += await letters.drop(letter)

        chosen = _chosen(letters, ref)
        shown = every and not as_json
        return await run_each(chosen, forget, what="dropping", total=many, shown=shown)

    many = with_redis(look)
    if many and not yes:
        click.confirm(f"Forget {counted(many, 'dead letter')} for good?", abort=True, err=True)
    whole = with_redis(run) if many else True
    text = f"Dropped {counted(done, 'letter')}."
    how_far = f"{done} of {counted(many, 'letter')} dropped, the others are where they were."
    end(whole, {"dropped": done}, text, how_far, as_json=as_json)


def _letters(client: RedisClient) -> DeadLetters:
    from shared.settings import load
    from shared.store.turns.dead_letters import DeadLetters
    from shared.store.turns.inbox import Inbox, InboxLimits

    settings = load()
    inbox = settings.inbox
    log_days = settings.web.log_days
    limits = InboxLimits(cap=inbox.cap, sessions_cap=inbox.sessions_cap, log_days=log_days)
    return DeadLetters(client, Inbox(client, limits), limits=limits)


def _one_or_all(ref: str | None, every: bool) -> None:
    if (ref is None) is not every:
        raise click.UsageError("Name one REF, or say --all.")


async def _found(letters: DeadLetters, ref: str) -> DeadLetterEntry:
    letter = await letters.find(ref)
    if letter is None:
        raise BadInput("no_letter", f"there is no dead letter {ref!r}; `shoal dead list` shows all of the last 30 days")
    return letter


async def _chosen(letters: DeadLetters, ref: str | None) -> AsyncIterator[DeadLetterEntry]:
    if ref is not None:
        yield await _found(letters, ref)
        return
    async for letter in letters.all():
        yield letter


def _facts(letter: DeadLetterEntry, show_chats: bool) -> dict[str, Any]:
    return {
        "reference": letter.reference,
        "reason": letter.reason,
        "channel": letter.channel,
        "session": log_id(letter.session),
        **({"chat": letter.chat_id} if show_chats else {}),
        "turn": letter.turn,
        "at": utc(letter.at_ms),
        "size_bytes": letter.size_bytes,
        "id": letter.id,
        "undelivered": letter.undelivered,
        **({"why": letter.why, "may_be_there": letter.unsure > 0} if letter.undelivered else {}),
        **({"provider_says": letter.why} if letter.why and not letter.undelivered else {}),
    }


def _for_people(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with words for what programs read as true or false."""
    shown = {name: value for name, value in facts.items() if name not in ("undelivered", "readable", "may_be_there")}
    what = "a reply that did not arrive" if facts["undelivered"] else "a message without an answer"
    if facts.get("may_be_there"):
        what += "; it may be there all the same"
    return {"what": what, **shown}


def _contents(letter: DeadLetterEntry, record: bytes, with_text: bool, show_chats: bool) -> dict[str, Any]:
    from shared.messages.outbound import UserLine, decode_line
    from shared.store.turns.dead_letters import DeadLetters

    facts: dict[str, Any] = {"readable": True}
    try:
        if letter.undelivered:
            line = decode_line(record)
            text = line.text if isinstance(line, UserLine) else line.content
            media = line.media
            at_ms = line.at
        else:
            message = DeadLetters.message_of(letter, record)
            text = message.content
            media = message.media
            at_ms = message.timestamp
            facts |= {"message_id": message.id, "thread": message.thread if show_chats else None}
            facts |= {"sender": message.sender_id} if show_chats else {}
            facts["trace"] = message.traceparent
    except BadRecord as exc:
        return {"readable": False, "problem": f"{exc.code}: {exc}"}
    facts |= {"sent_at": utc(at_ms), "media": len(media), "characters": len(text)}
    return facts | ({"text": text} if with_text else {})


def _row(letter: DeadLetterEntry, show_chats: bool) -> dict[str, object]:
    chat = {"chat": letter.chat_id} if show_chats else {"session": log_id(letter.session)}
    age_s = time.time() - letter.at_ms / 1000
    kind = {"reference": letter.reference, "reason": letter.reason, "channel": letter.channel}
    return {**kind, **chat, "age": duration(age_s), "size": size(letter.size_bytes)}
