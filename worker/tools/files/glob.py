"""Listing a folder, and finding files by name. Patterns have three signs, and matching takes at
most length of name times length of pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final
from unicodedata import normalize

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry, Safety, ToolContext

SHOWN: Final = 200
LISTED: Final = 300
_FOLDERS: Final = 30
_PARTS: Final = 32


class GlobArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern."""

    pattern: Annotated[
        str,
        Meta(
            max_length=200,
            description="Such as `notes/*.md` or `**/*.csv`: `*` is any text in one name, `?` one "
            "character, `**` any folders. There are no other signs. A pattern without `/` is looked "
            "for in every folder.",
        ),
    ]


class Glob:
    """Returns one path a line, with its size."""

    name = "glob"
    description = "Find files in your workspace by a pattern of their names."
    parameters = GlobArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: GlobArguments, context: ToolContext) -> str:
        entries = await context.files.entries()
        found = await asyncio.to_thread(_matching, entries, arguments.pattern)
        if not found:
            return f"No file is named like {arguments.pattern!r}. list_dir shows what there is."
        lines = [f"{entry.path}{_size(entry)}" for entry in found]
        return _listing(lines, SHOWN, "use a narrower pattern")


def _size(entry: FileEntry) -> str:
    return "" if entry.size_bytes is None else f" ({entry.size_bytes:,} bytes)"


def _listing(lines: list[str], limit: int, advice: str) -> str:
    more = f"\n\n[{len(lines) - limit} more; {advice}]" if len(lines) > limit else ""
    return "\n".join(lines[:limit]) + more


def _matching(entries: Sequence[FileEntry], pattern: str) -> list[FileEntry]:
    parts = _parts(normalize("NFC", pattern))
    files = (entry for entry in entries if not entry.path.endswith("/"))
    return [file for file in files if _fits(normalize("NFC", file.path).split("/"), parts)]


def _parts(pattern: str) -> list[str]:
    """Return the parts of a pattern: repeated `**` become one; a single name gets one in front."""
    parts = [part for part in pattern.strip().split("/") if part not in ("", ".")][:_PARTS]
    if len(parts) == 1:
        parts.insert(0, "**")
    return [part for n, part in enumerate(parts) if part != "**" or parts[n - 1 : n] != ["**"]]


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether a path fits. `reached` holds how many names may come before a part."""
    reached = {0}
    for part in parts:
        if part == "**":
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and _name_fits(names[at], part)}
        if not reached:
            return False
    return len(names) in reached


def _name_fits(name: str, part: str) -> bool:
    """Match `*` and `?` in a name. After a mismatch the latest `*` takes one character more."""
    at = sign = 0
    star = -1
    consumed = 0
    while at < len(name):
        if sign < len(part) and part[sign] == "*":
            star = sign
            consumed = at
            sign += 1
        elif sign < len(part) and part[sign] in ("?", name[at]):
            at = at + 1
            sign = sign + 1
        elif star >= 0:
            consumed += 1
            at = consumed
            sign = star + 1
        else:
            return False
    return all(rest == "*" for rest in part[sign:])


class ListDirArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A folder."""

    path: Annotated[str, Meta(description="A folder such as `skills/recap`; leave out for the whole.")] = ""


class ListDir:
    """Returns one name a line, files with their size, folders with a trailing `/`."""

    name = "list_dir"
    description = "List the files, with their sizes, and the folders in a folder of your workspace."
    parameters = ListDirArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: ListDirArguments, context: ToolContext) -> str:
        entries = await context.files.entries()
        folder = folder_prefix(arguments.path)
        inside = [entry for entry in entries if is_inside(entry.path, folder)]
        if not inside:
            folders = sorted({one.path.rpartition("/")[0] for one in entries if "/" in one.path})
            more = f" and {len(folders) - _FOLDERS} more" if len(folders) > _FOLDERS else ""
            known = f"Folders: {', '.join(folders[:_FOLDERS])}{more}"
            known = known if folders else "There are no folders"
            raise ToolFailed(f"there is no folder {arguments.path!r}. {known}")
        lines: set[str] = set()
        for entry in inside:
            name, deeper, _ = "/".join(entry.path.split("/")[folder.count("/") :]).partition("/")
            if name:
                lines.add(f"{name}/" if deeper else f"{name}{_size(entry)}")
        if not lines:
            return f"({arguments.path!r} is an empty folder)"
        return _listing(sorted(lines), LISTED, "use glob to narrow it")


def folder_prefix(path: str) -> str:
    """Return the beginning of all paths in a folder; `""` for the whole workspace."""
    return "".join(f"{part}/" for part in path.strip().split("/") if part not in ("", "."))


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path begins with a `folder_prefix`, in either Unicode form of its letters."""
    return normalize("NFC", path).startswith(normalize("NFC", folder))
