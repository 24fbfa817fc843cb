"""`shoal session`: conversations and their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from console import completion
from console.output import as_json, examples, limit, print_facts, print_json, print_table, utc, without_asking
from console.progress import bar
from console.redis_call import redis_command, with_redis
from console.session_files import export, import_, no_session
from shared.errors import Refused
from shared.ids import log_id, split_session
from shared.store import keys
from shared.terminal_text import clean, counted, duration, shorten, size

if TYPE_CHECKING:
    from shared.store.client.redis_client import RedisClient
    from shared.store.sessions.listing import SessionRow

BAR_FROM_KEYS: Final = 50_000
TITLE_CHARS: Final = 40

_LABELS: Final = {
    "preset": "model",
    "idle_s": "last activity",
    "memory_bytes": "MEMORY.md",
    "history_entries": "HISTORY.md entries",
}


@click.group()
def session() -> None:
    """Manage conversations: list, spent, show, read, set, export, import, forget, trust, requeue.

    NAME is channel:chat, as `list` shows it, e.g. web:owner/terminal. Only `read`, `export`,
    `show --memory` and `list --titles` show what people wrote.
    """


session.add_command(export)
session.add_command(import_)


@session.command("list", epilog=examples("shoal session list --titles", "shoal session list --match anna --limit 200"))
@click.option(
    "--match", default="", metavar="TEXT", help="Only names that contain this text, or have this hash in the logs."
)
@click.option("--titles", is_flag=True, help="Also titles, often a first message's beginning.")
@limit(50, 10_000)
@as_json
@redis_command
async def list_(client: RedisClient, match: str, titles: bool, limit: int, as_json: bool) -> None:
    """List conversations, the most recent first."""
    from shared.store.sessions.listing import list_sessions

    with bar("looking", shown=not as_json, least=BAR_FROM_KEYS) as looked:
        found = await list_sessions(client, match=match, limit=limit, on_progress=looked)
    if as_json:
        rows = [_session_facts(row) | ({"title": row.title} if titles else {}) for row in found.rows]
        print_json({"sessions": rows, "total": found.total, "whole": found.whole})
        return
    none = f"No session has {match!r} in its name." if match else "No sessions."
    print_table([_table_row(row, titles) for row in found.rows], none)
    if found.total > len(found.rows):
        click.echo(f"\n{found.total:,} in all; --match TEXT or a higher --limit shows others")
    if not found.whole:
        click.echo("The store is very big: not all of it was looked at.", err=True)


@session.command(epilog=examples("shoal session spent --limit 10"))
@limit(20, 10_000)
@as_json
@redis_command
async def spent(client: RedisClient, limit: int, as_json: bool) -> None:
    """List the chats that cost most today (UTC), the dearest first."""
    from shared.store.fleet.spenders import top_spenders

    found = await top_spenders(client, limit)
    if as_json:
        print_json({"spent": [{"session": one.session, "tokens": one.tokens, "usd": one.usd} for one in found]})
        return
    rows = [{"session": one.session, "tokens": f"{one.tokens:,}", "$": f"{one.usd:,.4f}"} for one in found]
    print_table(rows, "No chat has used a model today.")


@session.command(epilog=examples("shoal session show web:owner/terminal --memory"))
@click.argument("name", shell_complete=completion.sessions)
@click.option("--memory", "with_memory", is_flag=True, help="Also show MEMORY.md.")
@as_json
@redis_command
async def show(client: RedisClient, name: str, with_memory: bool, as_json: bool) -> None:
    """Show the state of a conversation and the size of its memory."""
    from shared.store.sessions.listing import row_of
    from shared.store.sessions.memory import MemoryStore
    from shared.store.sessions.session import Sessions

    session = await _existing_session(client, name)
    sessions = Sessions(client)
    state = await sessions.state(session)
    remembered = await sessions.memory_size(state.scope)
    lengths = [("LLEN", keys.archive(session)), ("XLEN", keys.outbox(session))]
    archived, lines = await client.pipeline(lengths)
    facts = _session_facts(await row_of(client, session)) | {
        "turn": state.turn or None,
        "attempt": state.attempt or None,
        "generation": state.generation,
        "archived_entries": archived,
        "log_lines": lines,
        "memory_scope": state.scope,
        "memory_bytes": remembered.memory_bytes,
        "history_entries": remembered.log_entries,
    }
    memory = (await MemoryStore(client).read_memory(state.scope)).text if with_memory else ""
    if as_json:
        print_json(facts | ({"memory": memory} if with_memory else {}))
        return
    idle_s = facts["idle_s"]
    facts |= {
        "running": "yes" if facts["running"] else "no",
        "idle_s": None if idle_s is None else f"{duration(idle_s)} ago",
        "memory_bytes": size(facts["memory_bytes"]),
        "metadata": ", ".join("=".join(item) for item in facts["metadata"].items()) or None,
    }
    print_facts(facts, labels=_LABELS)
    if with_memory:
        click.echo(f"\n{clean(memory)}")


@session.command(
    "read", epilog=examples("shoal session read web:owner/terminal", "shoal session read NAME --before PLACE")
)
@click.argument("name", shell_complete=completion.sessions)
@click.option("--before", default="", metavar="PLACE", help="Older entries, as the page after them names the place.")
@limit(50, 1000)
@as_json
@redis_command
async def read_session(client: RedisClient, name: str, before: str, limit: int, as_json: bool) -> None:
    """Show the newest entries of a conversation with the steps of tools, oldest first, from as far
    back as they are kept. The place at the end leads to the page before them."""
    import msgspec

    from shared.messages.transcript import decode_transcript
    from shared.settings import load
    from shared.store.sessions.backup import session_name
    from shared.store.sessions.transcripts import Transcripts
    from worker.memory.lines import render_line

    session = session_name(name)
    store = Transcripts(client)
    page = await store.read_back(session, before, limit=limit)
    # A page may be shorter than wanted, or empty, where the transcript begins.
    while page.before and len(page.records) < limit:
        older = await store.read_back(session, page.before, limit=limit - len(page.records))
        page = type(page)((*older.records, *page.records), older.before, page.trusted)
    if not page.records and not before:
        await _existing_session(client, name)
    entries = [decode_transcript.or_none(record) for record in page.records]
    if as_json:
        print_json({"session": session, "entries": msgspec.to_builtins(entries), "before": page.before})
        return
    timezone = load().agent.timezone or "UTC"
    for entry in entries:
        click.echo(clean(render_line(entry, timezone, named=True)))
    if not entries:
        click.echo("Nothing is kept of this conversation.")
    if page.before:
        click.echo(f"\nOlder entries: --before {page.before}", err=True)


@session.command(
    epilog=examples("shoal session forget web:owner/terminal", "shoal session forget web:owner/old --everything --yes")
)
@click.argument("name", shell_complete=completion.sessions)
@click.option(
    "--everything", is_flag=True, help="Also the messages that people see, and every other trace of the session."
)
@without_asking
@as_json
def forget(name: str, everything: bool, yes: bool, as_json: bool) -> None:
    """Delete memory and files (sent ones and those of the workspace) and end the conversation, as
    /forget does in the chat. A worker that has the volumes deletes the files."""

    async def look(client: RedisClient) -> tuple[str, str]:
        from shared.store.sessions.session import Sessions

        session = await _existing_session(client, name)
        try:
            return session, (await Sessions(client).state(session)).scope
        except Refused:
            if not everything:
                raise
            # A key of it is broken, which deleting everything mends
            return session, f"chat:{session}"

    async def run(client: RedisClient) -> int:
        from shared.store.sessions import erase

        if everything:
            return await erase.erase(client, chosen)
        await erase.forget(client, chosen)
        return 0

    chosen, scope = with_redis(look)
    if not yes:
        what = "everything there is of" if everything else "the memory and the conversation of"
        shared = scope != f"chat:{chosen}"
        others = f", and the memory {scope!r} that other chats have, too," if shared else ""
        click.confirm(f"Delete {what} {chosen!r}{others} for good?", abort=True, err=True)
    gone = with_redis(run)
    if as_json:
        print_json({"session": chosen, "everything": everything, "memory_scope": scope})
    elif everything:
        click.echo(f"Nothing is left of {chosen!r}: {counted(gone, 'record')} deleted.")
    else:
        click.echo(f"Forgotten: memory and conversation of {chosen!r}; the chat was told.")


@session.command(epilog=examples("shoal session trust web:owner/terminal"))
@click.argument("name", shell_complete=completion.sessions)
@as_json
@redis_command
async def trust(client: RedisClient, name: str, as_json: bool) -> None:
    """Trust the texts of others that a conversation has read, as /trust does in the chat, also in a
    memory that several chats share: the agent no longer asks because of them."""
    from shared.store.sessions import erase

    session = await _existing_session(client, name)
    trusted = await erase.trust(client, session)
    if as_json:
        print_json({"session": session, "trusted": trusted})
    else:
        click.echo(f"Trusted in {session!r}: {clean(', '.join(trusted)) or 'nothing was marked'}.")


@session.command("set", epilog=examples("shoal session set web:owner/terminal customer=4711 stage="))
@click.argument("name", shell_complete=completion.sessions)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=TEXT...")
@as_json
@redis_command
async def set_(client: RedisClient, name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Note something about a conversation, as metadata: at most 4 kB in all. KEY= removes a key.
    The agent does not see it; `show`, `list --json` and `export` do."""
    from shared.store.sessions.details import change_metadata
    from shared.store.sessions.listing import row_of

    pairs = [change.partition("=") for change in changes]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise click.UsageError(f"{wrong[0]!r} is not a change; write KEY=TEXT, or KEY= to remove it.")
    session = await _existing_session(client, name)
    if not await change_metadata(client, session, {key: text for key, _, text in pairs}):
        raise no_session(session)
    metadata = (await row_of(client, session)).details.metadata
    if as_json:
        print_json({"session": session, "metadata": metadata})
    else:
        click.echo(f"{session!r} has {counted(len(metadata), 'key')} of metadata.")


@session.command(epilog=examples("shoal session requeue"))
@as_json
@redis_command
async def requeue(client: RedisClient, as_json: bool) -> None:
    """Queue conversations again that have messages and are in no queue, as after a broken queue was
    deleted."""
    from shared.store.turns.lost_places import requeue_lost

    count = await requeue_lost(client)
    if as_json:
        print_json({"queued": count})
    else:
        click.echo(f"{counted(count, 'conversation')} queued again.")


async def _existing_session(client: RedisClient, name: str) -> str:
    from shared.store.sessions.backup import session_name

    session = session_name(name)
    if not await client.command("EXISTS", keys.session(session)):
        raise no_session(session)
    return session


def _session_facts(row: SessionRow) -> dict[str, Any]:
    import msgspec

    facts = msgspec.structs.asdict(row)
    details = row.details
    del facts["details"], facts["title"]
    return (
        {"session": row.session, "in_logs": log_id(row.session)}
        | facts
        | {
            "chat": split_session(row.session)[1],
            "preset": row.preset or None,
            "idle_s": None if row.idle_s is None else round(row.idle_s),
            "created_at": utc(details.created_at) if details.created_at else None,
            "updated_at": utc(details.updated_at) if details.updated_at else None,
            "metadata": details.metadata,
        }
    )


def _table_row(row: SessionRow, titles: bool) -> dict[str, object]:
    title = {"title": shorten(row.title, TITLE_CHARS)} if titles else {}
    return (
        {"session": row.session}
        | title
        | {
            "in logs": log_id(row.session),
            "messages": row.messages,
            "waiting": row.waiting,
            "running": "yes" if row.running else "",
            "model": row.preset,
            "entries": row.entries,
            "last activity": "" if row.idle_s is None else f"{duration(row.idle_s)} ago",
        }
    )
