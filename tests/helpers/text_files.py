"""The files of a turn as a test sees them: in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry


class TextFiles:
    """Every file can be written. `texts` is what they hold; `broken` names those that cannot be read."""

    def __init__(self, texts: Mapping[str, str], *, broken: Sequence[str] = ()) -> None:
        self.texts = dict(texts)
        self._broken = broken

    async def read(self, path: str) -> str:
        if path not in self.texts or path in self._broken:
            raise ToolFailed(f"there is no file {path!r}")
        return self.texts[path]

    async def content(self, path: str) -> str | bytes:
        return await self.read(path)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        if was is not None and self.texts.get(path) != was:
            raise ToolFailed(f"{path!r} was changed")
        self.texts[path] = text

    def stamp(self) -> str:
        return ""

    def as_of(self, stamp: str) -> TextFiles:
        return self

    async def names(self) -> Sequence[str]:
        return sorted(self.texts)

    async def entries(self) -> Sequence[FileEntry]:
        return [FileEntry(path, len(text.encode())) for path, text in sorted(self.texts.items())]
