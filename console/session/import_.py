"""`shoal session import`: conversations and their memory from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.completion import candidates
from console.examples import examples
from console.output import as_json, print_json
from console.redis_call import with_redis
from console.session.files import counts, describe
from console.session.progress import each, end_interrupted, one_by_one
from shared.errors import BadInput, RedisAway, ShoalError
from shared.terminal_text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.settings import Settings
    from shared.store.client.redis_client import RedisClient
    from shared.store.sessions.backup import SessionFile


@click.command(
    "import",
    epilog=examples(
        "shoal session import kept.json",
        "shoal session import kept.json --session web:anna/terminal --force",
        "shoal session import kept/",
    ),
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, allow_dash=True, path_type=Path)
)
@click.option(
    "--session", "name", metavar="NAME", shell_complete=candidates.sessions,
    help="Into this session; else into the one that was exported.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the memory and the conversation that are there.")
@as_json
def import_(files: tuple[Path, ...], name: str | None, force: bool, as_json: bool) -> None:
    """Restore a memory and a conversation from an exported FILE (`-` is standard input), all or
    nothing. Of a folder every file in it whose name ends with .json is one.

    A file of a memory alone leaves the conversation as it is. The log that people see, the files
    that were sent, and those in the workspace are never changed. Ctrl-C ends it between two files.
    """
    single = files[0] if len(files) == 1 and not files[0].is_dir() else None
    if single is None and name is not None:
        raise click.UsageError("--session goes with one file.")
    if single is None:
        _many([path for file in files for path in _files(file)], force, as_json)
    else:
        _one(single, name, force, as_json)


def _one(path: Path, name: str | None, force: bool, as_json: bool) -> None:
    from shared.store.sessions.backup import session_name

    found = _read(path)
    session = session_name(name or found.session)

    async def write(client: RedisClient, settings: Settings) -> None:
        await _restore(client, settings, found, session, force)

    with_redis(write)
    if as_json:
        print_json(counts(found, session))
    else:
        click.echo(f"Restored {session!r}: {describe(found)}.")


def _many(paths: Sequence[Path], force: bool, as_json: bool) -> None:
    restored: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []

    async def run(client: RedisClient, settings: Settings) -> bool:
        async def restore(path: Path) -> None:
            try:
                found = _read(path)
                await _restore(client, settings, found, found.session, force)
            except RedisAway:
                raise
            except ShoalError as exc:
                left.append({"file": str(path), "why": str(exc)})
            else:
                restored.append(counts(found, found.session) | {"file": str(path)})

        return await each(one_by_one(paths), restore, what="restoring", total=len(paths), shown=not as_json)

    whole = with_redis(run)
    if as_json:
        print_json({"restored": restored, "left": left, "interrupted": not whole})
    else:
        click.echo(f"Restored {counted(len(restored), 'session')}.")
    for one in left:
        click.echo(f"{one['file']!r} was not restored: {one['why']}", err=True)
    if not whole:
        end_interrupted(f"{len(restored)} of {counted(len(paths), 'file')} restored, the others not at all.")
    if left:
        sys.exit(1)


async def _restore(client: RedisClient, settings: Settings, file: SessionFile, session: str, force: bool) -> None:
    from shared.store.sessions.backup import SessionBackup

    await SessionBackup(client, settings).restore(file, session, replace=force)


def _read(path: Path) -> SessionFile:
    """Raises BadInput for what is no exported session."""
    from shared.store.sessions.backup import FILE_LIMIT_BYTES, read_file

    try:
        with click.open_file(str(path), "rb") as file:
            return read_file(file.read(FILE_LIMIT_BYTES + 1))
    except OSError as exc:
        raise BadInput("no_file", f"{str(path)!r} cannot be read: {exc.strerror}") from None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json")) if path.is_dir() else [path]
