"""The files of one turn: MEMORY.md and HISTORY.md from the store, skills, the session's
workspace."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Final

from shared.errors import ToolFailed
from shared.store.sessions.memory import MemoryStore, MemoryText
from shared.store.turns.queue import Claim
from worker.agent.model.model import Image
from worker.agent.tools.tool import FileEntry, valid_text
from worker.documents.images import picture_in
from worker.documents.kinds import decode_text
from worker.guards.openat import NoSuchFile
from worker.guards.paths import split_path
from worker.guards.workspace import Workspace
from worker.skills.catalogue import Skill
from worker.turn.memory_file import HISTORY, MEMORY, MemoryFile

TEXT_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""Limit of one text file that is read."""

_STORE_FILES: Final = {name.casefold(): name for name in (MEMORY, HISTORY)}
_MAX_NAMES: Final = 20


class TurnFiles:
    """Files of one turn, in memory scope `scope`.

    `memory` is MEMORY.md as the model saw it in its prompt; with `claim` it is written only while
    the turn holds its lease. `limit_bytes` caps MEMORY.md. `skills` are the operator's and the
    built-in ones; their files are read-only. All other files are in `workspace`, if there is one. A
    name that belongs to the store or to one of those skills is never searched on disk.
    """

    def __init__(
        self,
        store: MemoryStore,
        scope: str,
        memory: MemoryText,
        *,
        claim: Claim | None,
        limit_bytes: int,
        skills: Sequence[Skill] = (),
        workspace: Workspace | None = None,
    ) -> None:
        self._memory = MemoryFile(store, scope, memory, claim=claim, limit_bytes=limit_bytes)
        self._skills = {skill.name.casefold(): skill for skill in skills}
        self._workspace = workspace
        self._as_of: str | None = None

    def stamp(self) -> str:
        """Return the version of MEMORY.md."""
        return self._memory.seen.version

    def as_of(self, stamp: str) -> TurnFiles:
        files = copy.copy(self)
        files._as_of = stamp
        return files

    async def content(self, path: str) -> str | bytes:
        match split_path(path):
            case [name] if name == MEMORY:
                return await self._memory.read()
            case [name] if name == HISTORY:
                return await self._memory.history()
            case [name] if name.casefold() in _STORE_FILES:
                raise ToolFailed(f"there is no file {path!r}; there is {_STORE_FILES[name.casefold()]!r}")
            case ["skills", name, *inside] if (skill := self._skills.get(name.casefold())) is not None:
                return await self._read_skill(path, skill, "/".join(inside))
            case [_, *_] if self._workspace is not None:
                return await self._read_own(path, self._workspace)
        raise await self._missing(path)

    async def read(self, path: str) -> str:
        text = await self.content(path)
        if isinstance(text, str):
            return text
        raise ToolFailed(f"{path!r} is no text file ({len(text):,} bytes); read_file says what it is")

    async def picture(self, path: str) -> Image:
        """Return a file as a picture (see `Pictures`)."""
        content = await self.content(path)
        return picture_in(path, content.encode() if isinstance(content, str) else content)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        """Write a file. MEMORY.md is written by compare-and-swap: never over a text that the model
        has not seen."""
        text = valid_text(text)
        match split_path(path):
            case [name] if name == MEMORY:
                await self._memory.replace(text, was, as_of=self._as_of)
            case [name] if name == HISTORY:
                raise ToolFailed(f"{path!r} is read-only; what shall be remembered goes into {MEMORY!r}")
            case [name] if name.casefold() in _STORE_FILES:
                raise ToolFailed(f"{path!r} cannot be written; did you mean {_STORE_FILES[name.casefold()]!r}?")
            case ["skills", name, *_] if name.casefold() in self._skills:
                raise ToolFailed(f"{path!r} is read-only: the skill {name!r} is not yours. Use another name")
            case _ if self._workspace is None:
                raise ToolFailed(f"{path!r} cannot be written; the file that you can write is {MEMORY!r}")
            case _:
                before = None if was is None else was.encode("utf-8")
                await self._workspace.write_file(path, text.encode("utf-8"), was=before)

    async def copies(self) -> dict[str, bytes]:
        """Return MEMORY.md, as the model saw it last, and HISTORY.md: for commands, which see only
        files on disk."""
        return {MEMORY: self._memory.seen.text.encode(), HISTORY: (await self._memory.history()).encode()}

    async def names(self) -> Sequence[str]:
        """Return the paths of all files. Skills whose files were deleted meanwhile are left out."""
        return [entry.path for entry in await self.entries() if not entry.path.endswith("/")]

    async def entries(self) -> Sequence[FileEntry]:
        own = await self._workspace.list_entries() if self._workspace is not None else ()
        skills = await asyncio.to_thread(self._skill_names)
        memory = FileEntry(MEMORY, len(self._memory.seen.text.encode()))
        shown = [memory, FileEntry(HISTORY), *map(FileEntry, skills), *filter(self._is_own, own)]
        return sorted(shown, key=lambda entry: entry.path)

    def _is_own(self, entry: FileEntry) -> bool:
        """Return whether a file on disk can be reached: a file of the store or of the operator
        always wins over one of the same name."""
        first, *inside = entry.path.split("/")
        if first == "skills" and inside and inside[0].casefold() in self._skills:
            return False
        return bool(inside) or first.casefold() not in _STORE_FILES

    async def _read_own(self, path: str, workspace: Workspace) -> str | bytes:
        try:
            data = await workspace.read_file(path)
        except NoSuchFile:
            raise await self._missing(path) from None
        text = await asyncio.to_thread(decode_text, data)
        if text is None:
            return data
        if len(data) > TEXT_LIMIT_BYTES:
            raise ToolFailed(
                f"{path!r} has {len(data):,} bytes; only text of up to {TEXT_LIMIT_BYTES:,} bytes can be read"
            )
        return text

    async def _read_skill(self, path: str, skill: Skill, inside: str) -> str:
        if not inside:
            raise ToolFailed(f"{path!r} is a folder; list_dir shows what is in it")
        try:
            return await asyncio.to_thread(skill.read, inside)
        except (FileNotFoundError, NotADirectoryError):
            raise await self._missing(path) from None
        except UnicodeDecodeError:
            raise ToolFailed(f"{path!r} is no text file; only text can be read") from None
        except ValueError as exc:
            raise ToolFailed(f"{path!r} cannot be read: {exc}") from None
        except OSError:
            raise ToolFailed(f"{path!r} is not a plain file that can be read; list_dir shows what there is") from None

    async def _missing(self, path: str) -> ToolFailed:
        names = await self.names()
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return ToolFailed(f"there is no file {path!r}. There are: {', '.join(names[:_MAX_NAMES])}{more}")

    def _skill_names(self) -> list[str]:
        return [f"skills/{skill.name}/{name}" for skill in self._skills.values() for name in skill.names()]
