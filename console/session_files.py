"""`shoal session export` and `import`: conversations and their memory as files."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from console import completion
from console.output import as_json, examples, print_json
from console.progress import end, run_each
from console.redis_call import redis_command
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, RedisAway, ShoalError
from shared.ids import log_id
from shared.terminal_text import counted

if TYPE_CHECKING:
    from shared.store.client.redis_client import RedisClient
    from shared.store.sessions.backup import SessionBackup, SessionFile

NAME_CHARS: Final = 80

_PATH: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_PATHS: Final = click.Path(path_type=Path, exists=True, allow_dash=True)


@click.command(
    epilog=examples(
        "shoal session export web:owner/terminal > kept.json",
        "shoal session export web:owner/terminal -o kept.json",
        "shoal session export --all --folder kept/",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.sessions)
@click.option("--all", "every", is_flag=True, help="Every session.")
@click.option("-o", "--output", type=_PATH, help="The file; else standard output.")
@click.option("--folder", type=_FOLDER, help="Folder for one file per session.")
@click.option("--memory-only", is_flag=True, help="Only MEMORY.md and HISTORY.md.")
@as_json
@redis_command
async def export(
    client: RedisClient,
    names: tuple[str, ...],
    every: bool,
    output: Path | None,
    folder: Path | None,
    memory_only: bool,
    as_json: bool,
) -> None:
    """Write a conversation, its memory and its log as one JSON document. Sent files are named but
    not included; files of the workspace are left out.

    Several sessions are written into a folder, each file whole or not at all. Ctrl-C stops between
    two files.
    """
    from shared.settings import load
    from shared.store.sessions.backup import SessionBackup, write_file
    from shared.store.sessions.listing import session_names

    if every == bool(names):
        raise click.UsageError("Name a session, or say --all.")
    if folder is not None and output is not None:
        raise click.UsageError("Say --output or --folder, not both.")
    if folder is None and (every or len(names) > 1):
        raise click.UsageError("Several sessions need --folder.")
    backup = SessionBackup(client, load())
    if folder is None:
        file = await _load_session(client, backup, names[0], memory_only)
        if output is None:
            click.echo(write_file(file), nl=False)
        elif as_json:
            print_json(_write(output, file))
        else:
            _write(output, file)
            click.echo(f"Wrote {str(output)!r}: {_describe(file)}.")
        for why in _unreadable(file):
            click.echo(why, err=True)
            sys.exit(1)
        return

    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise BadInput("no_folder", f"the folder {str(folder)!r} cannot be made: {exc.strerror}") from None
    chosen = list(names) or sorted((await session_names(client))[0])
    written: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []

    async def keep(name: str) -> None:
        try:
            file = await _load_session(client, backup, name, memory_only)
            written.append(_write(folder / file_name(file.session), file))
            left.extend({"session": name, "why": why} for why in _unreadable(file))
        except BadInput as exc:
            left.append({"session": name, "why": exc.message})

    whole = await run_each(chosen, keep, what="exporting", total=len(chosen), shown=not as_json)
    text = f"Wrote {counted(len(written), 'session')} into {str(folder)!r}."
    how_far = f"{len(written)} of {counted(len(chosen), 'session')} written, each file whole."
    lines = [f"{one['session']!r}: {one['why']}" for one in left]
    end(whole, {"written": written, "left": left}, text, how_far, lines, as_json=as_json)


@click.command(
    "import",
    epilog=examples(
        "shoal session import kept.json",
        "shoal session import kept.json --session web:anna/terminal --force",
        "shoal session import kept/",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_PATHS)
@completion.session_option("--session", "name", help="Target; by default the one that was exported.")
@click.option("--force", is_flag=True, help="Replace existing memory and conversation.")
@as_json
@redis_command
async def import_(client: RedisClient, files: tuple[Path, ...], name: str | None, force: bool, as_json: bool) -> None:
    """Restore memory and conversation from an exported FILE (`-` is standard input), all or
    nothing. For a folder, every file in it that ends with .json is restored.

    A file with memory only leaves the conversation as it is. The log that people see, sent files
    and files of the workspace are never changed. Ctrl-C stops between two files.
    """
    from shared.settings import load
    from shared.store.sessions.backup import SessionBackup, session_name

    backup = SessionBackup(client, load())
    if len(files) == 1 and not files[0].is_dir():
        found = _parse_export(files[0])
        session = session_name(name or found.session)
        await backup.restore(found, session, replace=force)
        if as_json:
            print_json(_counts(found, session))
        else:
            click.echo(f"Restored {session!r}: {_describe(found)}.")
        return
    if name is not None:
        raise click.UsageError("--session goes with one file.")

    each = (sorted(file.glob("*.json")) if file.is_dir() else [file] for file in files)
    paths = [path for some in each for path in some]
    restored: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []

    async def restore(path: Path) -> None:
        try:
            found = _parse_export(path)
            await backup.restore(found, found.session, replace=force)
            restored.append(_counts(found, found.session) | {"file": str(path)})
        except RedisAway:
            raise
        except ShoalError as exc:
            left.append({"file": str(path), "why": str(exc)})

    whole = await run_each(paths, restore, what="restoring", total=len(paths), shown=not as_json)
    text = f"Restored {counted(len(restored), 'session')}."
    how_far = f"{len(restored)} of {counted(len(paths), 'file')} restored, the others not at all."
    lines = [f"{one['file']!r} was not restored: {one['why']}" for one in left]
    end(whole, {"restored": restored, "left": left}, text, how_far, lines, as_json=as_json)


def file_name(session: str) -> str:
    """Return a readable file name that every file system accepts and no other session has."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', session)[:NAME_CHARS]}-{log_id(session)}.json"


def no_session(session: str) -> BadInput:
    """Return the error for a session that does not exist."""
    return BadInput("no_session", f"there is no session {session!r}; `shoal session list` shows all")


async def _load_session(client: RedisClient, backup: SessionBackup, name: str, memory_only: bool) -> SessionFile:
    """Export one session. Raises BadInput for one that does not exist."""
    from shared.store import keys
    from shared.store.sessions.backup import session_name

    session = session_name(name)
    file = await backup.export(session, now_ms=SYSTEM_CLOCK.now_ms(), memory_only=memory_only)
    known = await client.command("EXISTS", keys.session(session))
    if not known and not file.memory_md and not file.history_md:
        raise no_session(session)
    return file


def _parse_export(path: Path) -> SessionFile:
    """Parse an exported session. Raises BadInput for anything else."""
    from shared.store.sessions.backup import FILE_LIMIT_BYTES, read_file

    try:
        with click.open_file(str(path), "rb") as file:
            return read_file(file.read(FILE_LIMIT_BYTES + 1))
    except OSError as exc:
        raise BadInput("no_file", f"{str(path)!r} cannot be read: {exc.strerror}") from None


def _write(path: Path, file: SessionFile) -> dict[str, Any]:
    """Write the whole file or none, readable by its owner only: it holds conversations. Returns its
    contents in numbers. Raises BadInput."""
    from shared.store.sessions.backup import write_file

    temporary = ""
    try:
        # It is made with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with open(handle, "wb") as out:
            out.write(write_file(file))
        os.replace(temporary, path)
    except OSError as exc:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise BadInput("no_file", f"{str(path)!r} cannot be written: {exc.strerror}") from None
    return _counts(file, file.session) | {"file": str(path)}


def _counts(file: SessionFile, session: str) -> dict[str, Any]:
    return {
        "session": session,
        "memory_bytes": len(file.memory_md.encode()),
        "history_entries": len(file.history_md),
        "entries": None if file.conversation is None else len(file.conversation),
        "archived_entries": None if file.archive is None else len(file.archive),
        "transcript_entries": None if file.transcript is None else len(file.transcript),
        "unreadable": file.unreadable,
    }


def _describe(file: SessionFile) -> str:
    parts = [
        f"MEMORY.md with {counted(len(file.memory_md.encode()), 'byte')}",
        f"HISTORY.md with {counted(len(file.history_md), 'entry', 'entries')}",
    ]
    if file.conversation is not None:
        parts.append(f"a conversation of {counted(len(file.conversation), 'entry', 'entries')}")
    if file.archive:
        earlier = counted(len(file.archive), "earlier entry", "earlier entries")
        parts.append(f"{earlier} not in memory yet")
    if file.transcript:
        parts.append(f"a transcript of {counted(len(file.transcript), 'entry', 'entries')} before them")
    return ", ".join(parts)


def _unreadable(file: SessionFile) -> list[str]:
    if not file.unreadable:
        return []
    many = counted(file.unreadable, "record")
    return [f"{many} of a newer release could not be read and are not in the file; export with that release"]
