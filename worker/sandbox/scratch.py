"""Temporary folders of commands, and taking them away again, whatever a command has made of
them."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from pathlib import Path

FOLDER_MODE = 0o700


def create_scratch(top: Path, socket: Path) -> Path:
    """The folder below `top` for the runner that listens on `socket`, empty. What a killed one left
    there goes. Raises OSError, also for a folder that is somebody else's."""
    name = hashlib.blake2b(os.fsencode(socket.absolute()), digest_size=8).hexdigest()
    folder = top / f"shoal-runner-{os.getuid()}-{name}"
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    info = folder.lstat()
    if folder.is_symlink() or info.st_uid != os.getuid():
        raise PermissionError(f"{str(folder)!r} is somebody else's; remove it, or set runner.scratch")
    folder.chmod(FOLDER_MODE)
    for left in folder.iterdir():
        remove_tree(left)
    return folder


def create_command_folder(folder: Path) -> Path:
    """A new folder for one command."""
    return Path(tempfile.mkdtemp(prefix="command-", dir=folder))


def remove_tree(folder: Path) -> None:
    """Remove a folder in which nothing runs any more. Links are not followed; it may be any number
    of folders deep: what is inside a folder is moved up before, so that no path gets long. Raises
    OSError."""
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, FOLDER_MODE)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, FOLDER_MODE)  # else it could not be moved
                os.rename(inner.path, folder / secrets.token_hex(8))
            os.rmdir(entry.path)
    os.rmdir(folder)
