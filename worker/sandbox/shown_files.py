"""Read-only files in the workspace of a command of the runner: links into a folder that the command
may only read.

A runner cannot mount one file over another. So the name in the workspace is a link while the
command runs. A command that replaces the link changes only its own view: whatever has the name when
it ends is removed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def show_files(workspace: int, files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files into `folder` and link to them from the workspace. Raises OSError."""
    for name, data in files.items():
        if not is_plain_name(name):
            raise OSError(f"{name!r} is not a plain name")
        copy = folder / name
        copy.write_bytes(data)
        copy.chmod(0o440)
        _free_name(workspace, name)
        os.symlink(copy, name, dir_fd=workspace)


def is_plain_name(name: str) -> bool:
    """Return whether a name leads nowhere but into its folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def hide_files(workspace: int, files: Mapping[str, bytes]) -> None:
    """Remove the names from the workspace, whatever they are by now."""
    for name in files:
        with contextlib.suppress(OSError):
            _free_name(workspace, name)


def _free_name(workspace: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=workspace)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # the command made it a folder
        os.rename(name, f"{name}.{secrets.token_hex(4)}", src_dir_fd=workspace, dst_dir_fd=workspace)
