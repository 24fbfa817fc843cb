"""The files of one turn: MEMORY.md, HISTORY.md, skills, and the workspace of the session."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from shared.errors import RedisAway, ToolFailed
from shared.messages.sources import join_sources
from shared.store.sessions.memory import MemoryChanged, MemoryStore, MemoryText
from shared.store.turns.queue import Claim
from worker.agent.model.model import Image
from worker.agent.tools.text import valid_text
from worker.agent.tools.tool import FileEntry
from worker.documents.images import picture_in
from worker.documents.kinds import decode_text
from worker.documents.text import TEXT_LIMIT_BYTES, decode_content, encode_change
from worker.guards.marks import TurnMark, WorkspaceMark
from worker.guards.openat import NoSuchFile
from worker.guards.paths import split_path
from worker.guards.workspace import Workspace
from worker.lease.lease import Lease
from worker.skills.skill import Skill

MEMORY: Final = "MEMORY.md"
HISTORY: Final = "HISTORY.md"
SOUL: Final = "SOUL.md"
USER: Final = "USER.md"

_MAX_NAMES: Final = 20
_CHANGED: Final = (
    "{!r} was changed by somebody else since you read it, and is not written. "
    "Read it again and make your change to the new text"
)

T = TypeVar("T")


@dataclass(eq=False)
class MemoryFile:
    """MEMORY.md and HISTORY.md of memory scope `scope`. `seen` is MEMORY.md as the model saw it
    last; with `claim` it is written only while the turn holds its lease. `limit_bytes` caps it.
    What is written gets the `mark` of the turn, and what is read marks it. A file of another `name`
    (SOUL.md, USER.md) has no HISTORY.md, and is not written by a turn that has a mark: what it says
    shapes every later turn."""

    store: MemoryStore
    scope: str
    seen: MemoryText
    claim: Claim | None = field(kw_only=True)
    limit_bytes: int = field(kw_only=True)
    mark: TurnMark = field(default_factory=TurnMark, kw_only=True)
    name: str = field(default=MEMORY, kw_only=True)

    async def read(self) -> str:
        self.seen = await self._stored()
        return self.seen.text

    async def history(self) -> str:
        """Return HISTORY.md. A blank line always separates two entries, and is in none of them."""
        entries = await _await_store(self.store.read_log(self.scope))
        await self._stored()  # afterwards: a mark is never younger than its text
        lines = ([line.rstrip() for line in entry.splitlines() if line.strip()] for entry in entries)
        return "\n\n".join("\n".join(kept) for kept in lines if kept)

    async def replace(self, text: str, was: str | None, *, as_of: str | None = None) -> None:
        """Write MEMORY.md by compare-and-swap: never over a text that the model has not seen.
        `as_of` is the version that the model had seen when it asked for a whole new text on another
        worker; `seen` is newer then."""
        if self.name != MEMORY and self.mark.sources:
            raise ToolFailed(
                f"{self.name!r} is not written: "
                f"this chat has read what strangers wrote ({join_sources(self.mark.sources)}). "
                "Ask the person to look at it and say /trust first"
            )
        size_bytes = len(text.encode())
        if size_bytes > self.limit_bytes:
            raise ToolFailed(
                f"{self.name!r} would have {size_bytes:,} bytes; at most {self.limit_bytes:,} are allowed. "
                "Shorten it: merge what belongs together and remove what no longer matters"
            )
        if was is None and as_of not in (None, self.seen.version):
            now = await self._stored()
            if now.text != text:
                raise ToolFailed(_CHANGED.format(self.name))
            self.seen = now  # that worker wrote it and died before it could report that
            return
        was = self.seen.text if was is None else was
        if self.seen.text == was and await self._swap(self.seen, text):
            return
        now = await self._stored()
        if now.text == text:
            self.seen = now  # an earlier attempt of this turn did it
        elif now.text != was or not await self._swap(now, text):
            raise ToolFailed(_CHANGED.format(self.name))

    async def _swap(self, base: MemoryText, text: str) -> bool:
        scope = self.scope
        claim = self.claim
        sources = self.mark.sources
        write = self.store.write_memory(scope, text, version=base.version, claim=claim, sources=sources)
        try:
            self.seen = MemoryText(text, await _await_store(write))
        except MemoryChanged:
            return False
        return True

    async def _stored(self) -> MemoryText:
        stored = await _await_store(self.store.read_memory(self.scope))
        self.mark.add(stored.sources)
        return stored


class TurnFiles:
    """Files of one turn, or with `memory` None of a subagent, which has no memory. `skills` are the
    operator's and the built-in ones; their files are read-only. All other files are in `workspace`,
    if there is one. A name that belongs to the store or to one of those skills is never searched on
    disk. `own` are SOUL.md and USER.md where the agent has them."""

    def __init__(
        self,
        memory: MemoryFile | None,
        *,
        skills: Sequence[Skill] = (),
        workspace: Workspace | None = None,
        mark: WorkspaceMark | None = None,
        own: Sequence[MemoryFile] = (),
    ) -> None:
        self.mark: Final = mark or WorkspaceMark(TurnMark())
        self._memory = memory
        self._writable = {file.name: file for file in ([memory] if memory else []) + [*own]}
        self._store_files = {name.casefold(): name for name in (MEMORY, HISTORY, *self._writable)}
        self._skills = {skill.name.casefold(): skill for skill in skills}
        self._workspace = workspace
        self._as_of: str | None = None

    def stamp(self) -> str:
        """Return the versions of MEMORY.md and of the agent's own files."""
        return " ".join(file.seen.version for file in self._writable.values())

    def as_of(self, stamp: str) -> TurnFiles:
        files = copy.copy(self)
        files._as_of = stamp
        return files

    async def content(self, path: str) -> str | bytes:
        match split_path(path):
            case [name] if (stored := self._store_files.get(name.casefold())) is not None:
                memory = self._memory_for(path)
                if name != stored:
                    raise ToolFailed(f"there is no file {path!r}; there is {stored!r}")
                return await (memory.history() if name == HISTORY else self._writable[name].read())
            case ["skills", name, *inside] if (skill := self._skills.get(name.casefold())) is not None:
                return await self._read_skill(path, skill, "/".join(inside))
            case [_, *_] if self._workspace is not None:
                return await self._read_own(path, self._workspace)
        raise await self._missing(path)

    async def read(self, path: str) -> str:
        return (await decode_content(path, await self.content(path))).text

    async def picture(self, path: str) -> Image:
        """Return a file as a picture (see `Pictures`)."""
        content = await self.content(path)
        return picture_in(path, content.encode() if isinstance(content, str) else content)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        """Write a file, MEMORY.md by compare-and-swap."""
        text = valid_text(text)
        await _await_store(self.mark.settle())
        match split_path(path):
            case [name] if (stored := self._store_files.get(name.casefold())) is not None:
                self._memory_for(path)
                if name != stored:
                    raise ToolFailed(f"{path!r} cannot be written; did you mean {stored!r}?")
                if name == HISTORY:
                    raise ToolFailed(f"{path!r} is read-only; what shall be remembered goes into {MEMORY!r}")
                versions = dict(zip(self._writable, (self._as_of or "").split(), strict=False))
                await self._writable[name].replace(text, was, as_of=versions.get(name))
            case ["skills", name, *_] if name.casefold() in self._skills:
                raise ToolFailed(f"{path!r} is read-only: the skill {name!r} is not yours. Use another name")
            case _ if (workspace := self._workspace) is None:
                raise ToolFailed(f"{path!r} cannot be written; the file that you can write is {MEMORY!r}")
            case _:
                before = None if was is None else await workspace.read_file(path)
                after = None
                if was is not None and before is not None:
                    after = await asyncio.to_thread(encode_change, path, before, was, text)
                    if after is None:
                        raise ToolFailed(f"{path!r} is not as you read it any more; read it again")
                await _await_store(self.mark.before_write())
                await workspace.write_file(path, text.encode("utf-8") if after is None else after, was=before)

    async def copies(self) -> dict[str, bytes]:
        """Return the files of the store as the model saw them: commands see only the disk."""
        if (memory := self._memory) is None:
            return {}
        shown = {name: file.seen.text.encode() for name, file in self._writable.items()}
        return {**shown, HISTORY: (await memory.history()).encode()}

    async def names(self) -> Sequence[str]:
        """Return the paths of all files. Skills whose files were deleted meanwhile are left out."""
        return [entry.path for entry in await self.entries() if not entry.path.endswith("/")]

    async def entries(self) -> Sequence[FileEntry]:
        own = await self._workspace.list_entries() if self._workspace is not None else ()
        if own:  # names are text, too
            self.mark.note_read()
        skills = await asyncio.to_thread(self._skill_names)
        shown = [*map(FileEntry, skills), *filter(self._is_own, own)]
        if self._memory is not None:
            shown += [FileEntry(name, len(file.seen.text.encode())) for name, file in self._writable.items()]
            shown.append(FileEntry(HISTORY))
        return sorted(shown, key=lambda entry: entry.path)

    def _memory_for(self, path: str) -> MemoryFile:
        if self._memory is None:
            raise ToolFailed(f"{path!r} is not there: a subagent has no memory. Say in your result what to remember")
        return self._memory

    def _is_own(self, entry: FileEntry) -> bool:
        """Return whether a file on disk is in reach: names of the store and the operator win."""
        first, *inside = entry.path.split("/")
        if first == "skills" and inside and inside[0].casefold() in self._skills:
            return False
        return bool(inside) or first.casefold() not in self._store_files

    async def _read_own(self, path: str, workspace: Workspace) -> str | bytes:
        try:
            data = await workspace.read_file(path)
        except NoSuchFile:
            raise await self._missing(path) from None
        self.mark.note_read()
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
        there = ", ".join(names[:_MAX_NAMES])
        return ToolFailed(f"there is no file {path!r}. There are: {there}{more}")

    def _skill_names(self) -> list[str]:
        skills = self._skills.values()
        return [f"skills/{skill.name}/{name}" for skill in skills for name in skill.names()]


class LeasedOutside:
    """The Outside port of work with this lease and these files."""

    def __init__(self, lease: Lease, files: TurnFiles) -> None:
        self.token = int(lease.claim.token)
        self.fence = lease.claim.member
        self.until_doubtful = lease.until_suspended
        self.folder = files.mark.folder
        self._files = files

    async def copies(self) -> dict[str, bytes]:
        copies = await self._files.copies()
        await _await_store(self._files.mark.before_write())
        return copies

    def mark_read(self) -> None:
        self._files.mark.note_read()


async def _await_store(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except RedisAway:
        raise ToolFailed(
            "the memory cannot be reached just now. If this was to write something, read it before you try again"
        ) from None
