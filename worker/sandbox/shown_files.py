"""Files that a command sees in its workspace and cannot change: links to a folder that it may only
read.

A runner cannot mount one file over another. So while the command runs, the name in the workspace is
a link; a command that removes or replaces it has done so for itself alone, and what it put there
goes when it ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def show_files(workspace: int, files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files into `folder` and link to them from the workspace (a handle). Raises
    OSError."""
    for name, data in files.items():
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise OSError(f"{name!r} is no plain name")
        copy = folder / name
        copy.write_bytes(data)
        copy.chmod(0o440)
        _free_name(workspace, name)
        os.symlink(copy, name, dir_fd=workspace)


def hide_files(workspace: int, files: Mapping[str, bytes]) -> None:
    """Take the names out of the workspace again, whatever stands there by now."""
    for name in files:
        with contextlib.suppress(OSError):
            _free_name(workspace, name)


def _free_name(workspace: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=workspace)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # a folder of a command that took the name; it keeps what is in it
        os.rename(name, f"{name}.{secrets.token_hex(4)}", src_dir_fd=workspace, dst_dir_fd=workspace)
