"""The files of a subagent: the workspace of its session without its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry
from worker.guards.paths import split_path
from worker.turn.files import TurnFiles
from worker.turn.memory_file import HISTORY, MEMORY

_MEMORY_FILES: Final = {name.casefold() for name in (MEMORY, HISTORY)}


class SubagentFiles(TurnFiles):
    """The files of a turn without MEMORY.md and HISTORY.md."""

    def stamp(self) -> str:
        return ""

    async def content(self, path: str) -> str | bytes:
        _refuse_memory(path)
        return await super().content(path)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        _refuse_memory(path)
        await super().replace(path, text, was=was)

    async def copies(self) -> dict[str, bytes]:
        return {}

    async def entries(self) -> Sequence[FileEntry]:
        return [entry for entry in await super().entries() if entry.path.casefold() not in _MEMORY_FILES]


def _refuse_memory(path: str) -> None:
    parts = split_path(path)
    if len(parts) == 1 and parts[0].casefold() in _MEMORY_FILES:
        raise ToolFailed(f"{path!r} is not there: a subagent has no memory. Say in your result what to remember")
