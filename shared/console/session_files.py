"""`shoal session export` and `import`: a conversation and its memory as a file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

import click

from shared.clock import SYSTEM_CLOCK
from shared.console.plain import counted
from shared.console.redis_call import with_redis
from shared.errors import BadInput
from shared.settings import Settings
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.session_backup import (
    FILE_LIMIT_BYTES,
    SessionBackup,
    SessionFile,
    read_file,
    session_name,
    write_file,
)

NOT_WHOLE: Final = "{} of a newer release could not be read and are not in the file; export with that release"

_as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")


@click.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; else standard output.")
@click.option("--memory-only", is_flag=True, help="MEMORY.md and HISTORY.md alone.")
@_as_json
def export(name: str, output: Path | None, memory_only: bool, as_json: bool) -> None:
    """Write a conversation, its memory and its log as one JSON document; files that were sent are only named,
    and those in the workspace are not in it."""

    async def read(client: RedisClient, settings: Settings) -> SessionFile:
        session = session_name(name)
        file = await SessionBackup(client, settings).export(
            session, now_ms=SYSTEM_CLOCK.now_ms(), memory_only=memory_only
        )
        known = await client.command("EXISTS", keys.session(session))
        if not known and not file.memory_md and not file.history_md:
            raise BadInput("no_session", f"there is no session {session!r}; `shoal session list` shows all")
        return file

    file = with_redis(read)
    if output is None:
        click.echo(write_file(file), nl=False)
    else:
        _write(output, write_file(file))
        if as_json:
            _print_json(_counts(file, file.session) | {"file": str(output)})
        else:
            click.echo(f"Wrote {str(output)!r}: {_said(file)}.")
    if file.unreadable:
        click.echo(NOT_WHOLE.format(counted(file.unreadable, "record")), err=True)
        sys.exit(1)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--session", "name", metavar="NAME", help="Into this session; else into the one that was exported.")
@click.option("--force", is_flag=True, help="Replace the memory and the conversation that are there.")
@_as_json
def import_(file: BinaryIO, name: str | None, force: bool, as_json: bool) -> None:
    """Restore a memory and a conversation from an exported FILE (`-` is standard input), all or nothing.

    A file of a memory alone leaves the conversation as it is. The log that people see, the files that were sent, and
    those in the workspace are never changed.
    """
    found = read_file(file.read(FILE_LIMIT_BYTES + 1))
    session = session_name(name or found.session)

    async def write(client: RedisClient, settings: Settings) -> None:
        await SessionBackup(client, settings).restore(found, session, replace=force)

    with_redis(write)
    if as_json:
        _print_json(_counts(found, session))
    else:
        click.echo(f"Restored {session!r}: {_said(found)}.")


def _counts(file: SessionFile, session: str) -> dict[str, object]:
    return {
        "session": session,
        "memory_bytes": len(file.memory_md.encode()),
        "history_entries": len(file.history_md),
        "entries": None if file.conversation is None else len(file.conversation),
        "archived_entries": None if file.archive is None else len(file.archive),
        "unreadable": file.unreadable,
    }


def _said(file: SessionFile) -> str:
    told = [
        f"MEMORY.md with {counted(len(file.memory_md.encode()), 'byte')}",
        f"HISTORY.md with {counted(len(file.history_md), 'entry', 'entries')}",
    ]
    if file.conversation is not None:
        told.append(f"a conversation of {counted(len(file.conversation), 'entry', 'entries')}")
    if file.archive:
        told.append(f"{counted(len(file.archive), 'earlier entry', 'earlier entries')} not in memory yet")
    return ", ".join(told)


def _write(path: Path, data: bytes) -> None:
    """The whole file or none, for its owner alone: it holds what people said. Raises BadInput."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as exc:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise BadInput("no_file", f"{str(path)!r} cannot be written: {exc.strerror}") from None


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
