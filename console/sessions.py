"""`shoal session`: conversations and their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from console import completion
from console.output import as_json, examples, limit, print_facts, print_json, print_table, without_asking
from console.progress import bar
from console.redis_call import redis_command, with_redis
from console.session_files import export, import_, no_session
from shared.errors import Refused
from shared.ids import log_id, split_session
from shared.store import keys
from shared.terminal_text import clean, counted, duration, size

if TYPE_CHECKING:
    from shared.store.client.redis_client import RedisClient
    from shared.store.sessions.listing import SessionRow

BAR_FROM_KEYS: Final = 50_000

_LABELS: Final = {
    "preset": "model",
    "idle_s": "last activity",
    "memory_bytes": "MEMORY.md",
    "history_entries": "HISTORY.md entries",
}


@click.group()
def session() -> None:
    """Manage conversations: list, show, export, import, forget, requeue.

    NAME is channel:chat, as `list` shows it, e.g. web:owner/terminal. Only `export` and
    `show --memory` show what people wrote.
    """


session.add_command(export)
session.add_command(import_)


@session.command("list", epilog=examples("shoal session list", "shoal session list --match anna --limit 200"))
@click.option(
    "--match", default="", metavar="TEXT", help="Only names that contain this text, or have this hash in the logs."
)
@limit(50, 10_000)
@as_json
@redis_command
async def list_(client: RedisClient, match: str, limit: int, as_json: bool) -> None:
    """List conversations, the most recent first."""
    from shared.store.sessions.listing import list_sessions

    with bar("looking", shown=not as_json, least=BAR_FROM_KEYS) as looked:
        found = await list_sessions(client, match=match, limit=limit, on_progress=looked)
    if as_json:
        rows = [_session_facts(row) for row in found.rows]
        print_json({"sessions": rows, "total": found.total, "whole": found.whole})
        return
    none = f"No session has {match!r} in its name." if match else "No sessions."
    print_table([_table_row(row) for row in found.rows], none)
    if found.total > len(found.rows):
        click.echo(f"\n{found.total:,} in all; --match TEXT or a higher --limit shows others")
    if not found.whole:
        click.echo("The store is very big: not all of it was looked at.", err=True)


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
    }
    print_facts(facts, labels=_LABELS)
    if with_memory:
        click.echo(f"\n{clean(memory)}")


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
            return session, f"chat:{session}"  # a key of it is broken, which deleting everything mends

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

    return (
        {"session": row.session, "in_logs": log_id(row.session)}
        | msgspec.structs.asdict(row)
        | {
            "chat": split_session(row.session)[1],
            "preset": row.preset or None,
            "idle_s": None if row.idle_s is None else round(row.idle_s),
        }
    )


def _table_row(row: SessionRow) -> dict[str, object]:
    return {
        "session": row.session,
        "in logs": log_id(row.session),
        "messages": row.messages,
        "waiting": row.waiting,
        "running": "yes" if row.running else "",
        "model": row.preset,
        "entries": row.entries,
        "last activity": "" if row.idle_s is None else f"{duration(row.idle_s)} ago",
    }
