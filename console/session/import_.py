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
from console.session.progress import as_async, end_interrupted, run_each
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
    help="Target session; by default the one that was exported.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing memory and conversation.")
@as_json
def import_(files: tuple[Path, ...], name: str | None, force: bool, as_json: bool) -> None:
    """Restore memory and conversation from an exported FILE (`-` is standard input), all or
    nothing. For a folder, every file in it that ends with .json is restored.

    A file with memory only leaves the conversation as it is. The log that people see, sent files
    and files of the workspace are never changed. Ctrl-C stops between two files.
    """
    single = files[0] if len(files) == 1 and not files[0].is_dir() else None
    if single is None and name is not None:
        raise click.UsageError("--session goes with one file.")
    if single is None:
        _import_many([path for file in files for path in _files(file)], force, as_json)
    else:
        _import_one(single, name, force, as_json)


def _import_one(path: Path, name: str | None, force: bool, as_json: bool) -> None:
    from shared.store.sessions.backup import session_name

    found = _parse_export(path)
    session = session_name(name or found.session)

    async def write(client: RedisClient, settings: Settings) -> None:
        await _restore(client, settings, found, session, force)

    with_redis(write)
    if as_json:
        print_json(counts(found, session))
    else:
        click.echo(f"Restored {session!r}: {describe(found)}.")


def _import_many(paths: Sequence[Path], force: bool, as_json: bool) -> None:
    restored: list[dict[str, Any]] = []
    left: list[dict[str, str]] = []

    async def run(client: RedisClient, settings: Settings) -> bool:
        async def restore(path: Path) -> None:
            try:
                found = _parse_export(path)
                await _restore(client, settings, found, found.session, force)
            except RedisAway:
                raise
            except ShoalError as exc:
                left.append({"file": str(path), "why": str(exc)})
            else:
                restored.append(counts(found, found.session) | {"file": str(path)})

        return await run_each(as_async(paths), restore, what="restoring", total=len(paths), shown=not as_json)

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


def _parse_export(path: Path) -> SessionFile:
    """Parse an exported session. Raises BadInput for anything else."""
    from shared.store.sessions.backup import FILE_LIMIT_BYTES, read_file

    try:
        with click.open_file(str(path), "rb") as file:
            return read_file(file.read(FILE_LIMIT_BYTES + 1))
    except OSError as exc:
        raise BadInput("no_file", f"{str(path)!r} cannot be read: {exc.strerror}") from None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json")) if path.is_dir() else [path]
