"""The files of one turn: MEMORY.md and HISTORY.md, which live in the store, the skills, and long tool results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from shared.errors import RedisAway, ToolFailed
from shared.store.memory import MemoryChanged, MemoryStore, MemoryText
from shared.store.queue import Claim
from worker.agent.tool import valid_text
from worker.skills.catalogue import Skill

MEMORY: Final = "MEMORY.md"
HISTORY: Final = "HISTORY.md"
RESULTS_LIMIT_BYTES: Final = 256 * 1024
"""How much of a turn's long tool results is kept, in the worker's memory."""

_RESULT: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\.txt")
_NAMED: Final = 20

T = TypeVar("T")


class TurnFiles:
    """Files of one turn, in memory scope `scope`.

    `memory` is MEMORY.md as the model saw it in its prompt; with `claim` it is written only while the turn holds its
    lease. `limit_bytes` caps MEMORY.md. `skills` are all that the turn's prompt names; their files are read-only.
    `results/<name>.txt` keeps the whole of a long tool result, until the turn ends or moves to another worker.
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
    ) -> None:
        self._store = store
        self._scope = scope
        self._seen = memory
        self._claim = claim
        self._limit_bytes = limit_bytes
        self._skills = {skill.name: skill for skill in skills}
        self._results: dict[str, str] = {}

    async def read(self, path: str) -> str:
        match _parts(path):
            case [name] if name == MEMORY:
                self._seen = await _reached(self._store.read(self._scope))
                return self._seen.text
            case [name] if name == HISTORY:
                entries = await _reached(self._store.log(self._scope))
                return "\n\n".join(filter(None, map(_without_gaps, entries)))
            case ["results", name] if name in self._results:
                return self._results[name]
            case ["skills", name, *inside] if inside and name in self._skills:
                return await self._read_skill(path, self._skills[name], "/".join(inside))
        raise await self._missing(path)

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        """MEMORY.md is written by compare-and-swap: never over a text that the model has not seen."""
        text = valid_text(text)
        match _parts(path):
            case [name] if name == MEMORY:
                await self._remember(text, was)
            case ["results", name] if _RESULT.fullmatch(name):
                self._keep(name, text, was)
            case parts if parts == [HISTORY] or parts[:1] == ["skills"]:
                raise ToolFailed(f"{path!r} is read-only; the file that you can write is {MEMORY!r}")
            case _:
                raise ToolFailed(f"{path!r} cannot be written; the file that you can write is {MEMORY!r}")

    async def names(self) -> Sequence[str]:
        """Skills whose files are gone meanwhile are left out."""
        kept = [f"results/{name}" for name in self._results]
        return sorted([MEMORY, HISTORY, *kept, *await asyncio.to_thread(self._skill_names)])

    def _keep(self, name: str, text: str, was: str | None) -> None:
        if was is not None and self._results.get(name) != was:
            raise ToolFailed(f"'results/{name}' is not as you read it any more; read it again")
        others = sum(len(kept.encode()) for other, kept in self._results.items() if other != name)
        if others + len(text.encode()) > RESULTS_LIMIT_BYTES:
            raise ToolFailed(f"the results of this turn have more than {RESULTS_LIMIT_BYTES:,} bytes; ask for less")
        self._results[name] = text

    async def _remember(self, text: str, was: str | None) -> None:
        size_bytes = len(text.encode())
        if size_bytes > self._limit_bytes:
            raise ToolFailed(
                f"{MEMORY!r} would have {size_bytes:,} bytes; at most {self._limit_bytes:,} are allowed. "
                "Shorten it: merge what belongs together and remove what no longer matters"
            )
        await self._write(text, self._seen.text if was is None else was)

    async def _write(self, text: str, was: str) -> None:
        if self._seen.text == was and await self._swap(self._seen, text):
            return
        now = await _reached(self._store.read(self._scope))
        if now.text == text:
            self._seen = now  # an earlier attempt of this turn did it
            return
        if now.text == was and await self._swap(now, text):
            return
        raise ToolFailed(
            f"{MEMORY!r} was changed by somebody else since you read it, and is not written. "
            "Read it again and make your change to the new text"
        )

    async def _swap(self, base: MemoryText, text: str) -> bool:
        write = self._store.write(self._scope, text, version=base.version, claim=self._claim)
        try:
            version = await _reached(write)
        except MemoryChanged:
            return False
        self._seen = MemoryText(text, version)
        return True

    async def _read_skill(self, path: str, skill: Skill, inside: str) -> str:
        try:
            return await asyncio.to_thread(skill.read, inside)
        except (FileNotFoundError, NotADirectoryError):
            raise await self._missing(path) from None
        except UnicodeDecodeError:
            raise ToolFailed(f"{path!r} is no text file; only text can be read") from None
        except ValueError as exc:
            raise ToolFailed(f"{path!r} cannot be read: {exc}") from None
        except OSError:
            raise ToolFailed(f"{path!r} is no plain file that can be read; list_dir shows what there is") from None

    async def _missing(self, path: str) -> ToolFailed:
        names = await self.names()
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ToolFailed(f"there is no file {path!r}. There are: {', '.join(names[:_NAMED])}{more}")

    def _skill_names(self) -> list[str]:
        return [f"skills/{skill.name}/{name}" for skill in self._skills.values() for name in skill.names()]


def _parts(path: str) -> list[str]:
    """The parts of a relative path; none for what is none of ours: an absolute path, or one with `..`."""
    parts = [part for part in path.strip().split("/") if part != "."]
    return [] if "" in parts or ".." in parts else parts


def _without_gaps(entry: str) -> str:
    """An entry of HISTORY.md without blank lines, so that a blank line always stands between two entries."""
    return "\n".join(line.rstrip() for line in entry.splitlines() if line.strip())


async def _reached(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except RedisAway:
        raise ToolFailed(
            "the memory cannot be reached just now. If this was to write something, read it before you try again"
        ) from None
