"""`shoal session export`: conversations and their memory as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from console.completion import candidates
from console.examples import examples
from console.output import as_json, print_json
from console.redis_call import with_redis
from console.session.files import counts, describe, file_name, write
from console.session.progress import as_async, end_interrupted, run_each
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput
from shared.terminal_text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.settings import Settings
    from shared.store.client.redis_client import RedisClient
    from shared.store.sessions.backup import SessionFile

NOT_WHOLE: Final = "{} of a newer release could not be read and are not in the file; export with that release"


@click.command(
    epilog=examples(
        "shoal session export web:owner/terminal > kept.json",
        "shoal session export web:owner/terminal -o kept.json",
        "shoal session export --all --folder kept/",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=candidates.sessions)
@click.option("--all", "every", is_flag=True, help="Every session.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; else standard output.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Folder for one file per session.")
@click.option("--memory-only", is_flag=True, help="Only MEMORY.md and HISTORY.md.")
@as_json
def export(
    names: tuple[str, ...], every: bool, output: Path | None, folder: Path | None, memory_only: bool, as_json: bool
) -> None:
    """Write a conversation, its memory and its log as one JSON document. Sent files are named but
    not included; files of the workspace are left out.

    Several sessions are written into a folder, each file whole or not at all. Ctrl-C stops between
    two files.
    """
    if every == bool(names):
        raise click.UsageError("Name a session, or say --all.")
    if folder is not None and output is not None:
        raise click.UsageError("Say --output or --folder, not both.")
    if folder is not None:
        _export_many(names, folder, memory_only, as_json)
    elif every or len(names) > 1:
        raise click.UsageError("Several sessions need --folder.")
    else:
        _export_one(names[0], output, memory_only, as_json)


def _export_one(name: str, output: Path | None, memory_only: bool, as_json: bool) -> None:
    from shared.store.sessions.backup import write_file

    file = with_redis(lambda client, settings: _load_session(client, settings, name, memory_only))
    if output is None:
        click.echo(write_file(file), nl=False)
    else:
        write(output, write_file(file))
        if as_json:
            print_json(counts(file, file.session) | {"file": str(output)})
        else:
            click.echo(f"Wrote {str(output)!r}: {describe(file)}.")
    if file.unreadable:
        click.echo(NOT_WHOLE.format(counted(file.unreadable, "record")), err=True)
        sys.exit(1)


def _export_many(names: Sequence[str], folder: Path, memory_only: bool, as_json: bool) -> None:
    from shared.store.sessions.backup import write_file
    from shared.store.sessions.listing import session_names

    written: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []

    async def run(client: RedisClient, settings: Settings) -> tuple[bool, int]:
        chosen = list(names) or sorted((await session_names(client))[0])

        async def keep(name: str) -> None:
            try:
                file = await _load_session(client, settings, name, memory_only)
                path = folder / file_name(file.session)
                write(path, write_file(file))
            except BadInput as exc:
                left.append({"session": name, "why": exc.message})
                return
            written.append(counts(file, file.session) | {"file": str(path)})
            if file.unreadable:
                left.append({"session": name, "why": NOT_WHOLE.format(counted(file.unreadable, "record"))})

        total = len(chosen)
        return await run_each(as_async(chosen), keep, what="exporting", total=total, shown=not as_json), total

    _make_folder(folder)
    whole, total = with_redis(run)
    if as_json:
        print_json({"written": written, "left": left, "interrupted": not whole})
    else:
        click.echo(f"Wrote {counted(len(written), 'session')} into {str(folder)!r}.")
    for one in left:
        click.echo(f"{one['session']!r}: {one['why']}", err=True)
    if not whole:
        end_interrupted(f"{len(written)} of {counted(total, 'session')} written, each file whole.")
    if left:
        sys.exit(1)


async def _load_session(client: RedisClient, settings: Settings, name: str, memory_only: bool) -> SessionFile:
    """Export one session. Raises BadInput for one that does not exist."""
    from shared.store import keys
    from shared.store.sessions.backup import SessionBackup, session_name

    session = session_name(name)
    file = await SessionBackup(client, settings).export(session, now_ms=SYSTEM_CLOCK.now_ms(), memory_only=memory_only)
    known = await client.command("EXISTS", keys.session(session))
    if not known and not file.memory_md and not file.history_md:
        raise BadInput("no_session", f"there is no session {session!r}; `shoal session list` shows all")
    return file


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise BadInput("no_folder", f"the folder {str(folder)!r} cannot be made: {exc.strerror}") from None
