"""Paths that a model writes, checked and split before anything is opened."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from shared.errors import ToolFailed

PATH_LIMIT_BYTES: Final = 1024
NAME_LIMIT_BYTES: Final = 255
DEPTH_LIMIT: Final = 16

_DRIVE: Final = re.compile(r"[A-Za-z]:.*", re.DOTALL)


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into the names from the workspace down; empty for the workspace itself (`.`).
    `.` and a final `/` are dropped. Raises ToolFailed for every path that leads out of the
    workspace, or that another file system or a person could read as one that does."""
    if len(path) > PATH_LIMIT_BYTES or len(path.encode("utf-8", "replace")) > PATH_LIMIT_BYTES:
        raise ToolFailed(f"the path {path[:40]!r}… is too long; at most {PATH_LIMIT_BYTES:,} bytes are allowed")
    asked = path.strip()
    if asked.startswith("/"):
        raise _outside_workspace(path, "it begins with '/'")
    parts = tuple(part for part in asked.split("/") if part not in ("", "."))
    if parts and (parts[0].startswith("~") or _DRIVE.fullmatch(parts[0])):
        raise _outside_workspace(path, f"it begins with {parts[0][:2]!r}")
    for part in parts:
        if (wrong := name_fault(part)) is not None:
            raise _outside_workspace(path, wrong)
        if len(part.encode()) > NAME_LIMIT_BYTES:
            raise ToolFailed(f"the name {part[:40]!r}… is too long; at most {NAME_LIMIT_BYTES} bytes are allowed")
    if len(parts) > DEPTH_LIMIT:
        raise ToolFailed(f"{path!r} is {len(parts)} folders deep; at most {DEPTH_LIMIT} are allowed")
    return parts


def name_fault(name: str) -> str | None:
    """Return what is wrong with a name, or None: `..`, separators of any system, characters that
    look like either (full-width forms), invisible ones (NUL, marks of direction)."""
    if name == "..":
        return "it has '..' in it"
    if not name.isprintable():
        return "it has a character in it that cannot be shown"
    plain = unicodedata.normalize("NFKC", name)
    if plain in ("", ".", "..") or "/" in plain or "\\" in plain:
        return "it has a sign in it that can stand for '/' or '..'"
    return None


def _outside_workspace(path: str, why: str) -> ToolFailed:
    return ToolFailed(
        f"{path!r} is outside the workspace: {why}. Use a path relative to the workspace, such as 'notes/todo.md'"
    )
