"""Links in a workspace to files of skills that a command may read. A mount over `skills/<name>` would
leave a folder behind, and a mount over `skills` would hide the agent's own skills."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = "skills"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW  # an agent may have put a link there


def skill_names(files: Mapping[str, bytes]) -> set[str]:
    """Return the names of the skills that have `files`, `<name>/<path>`. Raises OSError for a path
    that leads out of a skill."""
    for path in files:
        parts = path.split("/")
        if len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise OSError(f"{path!r} is no file of a skill")
    return {path.partition("/")[0] for path in files}


def write_skills(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of skills below `folder`, for a tier that cannot mount them. Raises OSError."""
    for path, data in files.items():
        copy = folder / path
        copy.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        copy.write_bytes(data)
        copy.chmod(0o550)


def link_skills(workspace: int, names: Iterable[str], target: str) -> None:
    """Link `skills/<name>` of the workspace to `<target>/<name>`. A skill that the agent wrote itself
    under that name stays; a link is one that an earlier command left behind. Raises OSError."""
    if not (names := sorted(names)):
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(FOLDER, 0o770, dir_fd=workspace)
    try:
        folder = os.open(FOLDER, _OPEN, dir_fd=workspace)
    except OSError:
        return  # something else has the name: the command does without
    try:
        for name in names:
            _remove_link(folder, name)
            with contextlib.suppress(FileExistsError):
                os.symlink(f"{target}/{name}", name, dir_fd=folder)
    finally:
        os.close(folder)


def unlink_skills(workspace: int, names: Iterable[str]) -> None:
    """Remove those links at the end of a command, and the folder if nothing else is in it."""
    if not (names := sorted(names)):
        return
    with contextlib.suppress(OSError):
        folder = os.open(FOLDER, _OPEN, dir_fd=workspace)
        try:
            for name in names:
                _remove_link(folder, name)
        finally:
            os.close(folder)
        os.rmdir(FOLDER, dir_fd=workspace)


def _remove_link(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.readlink(name, dir_fd=folder)  # fails for what is no link
        os.unlink(name, dir_fd=folder)
