"""Temporary folders of a runner and its commands."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from worker.guards.openat import remove_tree

FOLDER_MODE = 0o700


def create_scratch(top: Path, socket: Path) -> Path:
    """Create or empty the folder below `top` for the runner that listens on `socket`, and return
    it. A killed runner may have left files there. Raises OSError, also if another user owns it."""
    name = hashlib.blake2b(os.fsencode(socket.absolute()), digest_size=8).hexdigest()
    folder = top / f"shoal-runner-{os.getuid()}-{name}"
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    info = folder.lstat()
    # `top` may be /tmp: another user could have put a folder or a link under this name first.
    if folder.is_symlink() or info.st_uid != os.getuid():
        raise PermissionError(f"{str(folder)!r} is somebody else's; remove it, or set runner.scratch")
    folder.chmod(FOLDER_MODE)
    for left in folder.iterdir():
        remove_tree(left)
    return folder


def create_command_folder(folder: Path) -> Path:
    """Create and return a new folder for one command."""
    return Path(tempfile.mkdtemp(prefix="command-", dir=folder))
