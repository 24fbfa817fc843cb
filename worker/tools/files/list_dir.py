"""Listing a folder."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext

SHOWN: Final = 300
_FOLDERS: Final = 30


class ListDirArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder."""

    path: Annotated[str, msgspec.Meta(description="A folder such as `skills/recap`; leave out for the whole.")] = ""


class ListDir:
    """Returns one name a line, files with their size, folders with a trailing `/`."""

    name = "list_dir"
    description = "List the files, with their sizes, and the folders in a folder of your workspace."
    parameters = ListDirArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: ListDirArguments, context: ToolContext) -> str:
        entries = await context.files.entries()
        folder = "".join(f"{part}/" for part in arguments.path.strip().split("/") if part not in ("", "."))
        inside = [entry for entry in entries if entry.path.startswith(folder)]
        if not inside:
            raise ToolFailed(_no_folder(arguments.path, [entry.path for entry in entries]))
        lines: set[str] = set()
        for entry in inside:
            name, deeper, _ = entry.path.removeprefix(folder).partition("/")
            size = "" if entry.size_bytes is None else f" ({entry.size_bytes:,} bytes)"
            if name:
                lines.add(f"{name}/" if deeper else f"{name}{size}")
        if not lines:
            return f"({arguments.path!r} is an empty folder)"
        more = f"\n\n[{len(lines) - SHOWN} more; use glob to narrow it]" if len(lines) > SHOWN else ""
        return "\n".join(sorted(lines)[:SHOWN]) + more


def _no_folder(path: str, paths: list[str]) -> str:
    folders = sorted({path.rpartition("/")[0] for path in paths if "/" in path})
    more = f" and {len(folders) - _FOLDERS} more" if len(folders) > _FOLDERS else ""
    known = f"Folders: {', '.join(folders[:_FOLDERS])}{more}" if folders else "There are no folders"
    return f"there is no folder {path!r}. {known}"
