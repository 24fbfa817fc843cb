"""Folders of skills and files of the operator, kept in memory and read again when they change."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

from shared.clock import Clock
from shared.log import logger
from worker.skills.below import entries_below, read_below
from worker.skills.front_matter import Head, parse_skill

LOOK_EVERY_S: Final = 1.0  # one `stat` a file, however many turns run
T = TypeVar("T")


class CheckInterval:
    """Limits checks to one in LOOK_EVERY_S."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_EVERY_S
        return True


class WatchedFile(Generic[T]):
    """The content of a file. One that breaks keeps its last good content; a deleted one has none.
    `load` raises OSError or ValueError; `report` is called once for either."""

    def __init__(self, path: Path, load: Callable[[Path], T], report: Callable[[Exception], None]) -> None:
        self._path = path
        self._load = load
        self._report = report
        self._mark: tuple[int, ...] | None = None
        self._away = False
        self._content: T | None = None

    def read_if_changed(self) -> T | None:
        """Return the content; the file is read only if its times, its size or its inode changed."""
        try:
            info = os.stat(self._path)
            mark = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)
            if mark != self._mark:
                try:
                    self._content = self._load(self._path)
                except ValueError as exc:
                    self._report(exc)
                self._mark = mark  # also for a broken file: it is read again only once it has changed
            self._away = False
        except (FileNotFoundError, NotADirectoryError):
            self._mark = None
            self._content = None
            self._away = False
        except OSError as exc:
            if not self._away:
                self._away = True
                self._report(exc)
        return self._content


SKILL: Final = "SKILL.md"
NO_DESCRIPTION: Final = "skill without a description, listed by its folder's name"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Origin = Literal["built-in", "operator", "agent"]
log = logger("skills")


class SkillFolder:
    """A folder of skills that only the operator, or a release, writes."""

    def __init__(self, root: Path, origin: Origin) -> None:
        self.root = root
        self.origin: Origin = origin
        self._files: dict[str, WatchedFile[tuple[Head, str]]] = {}
        self._away = False

    def read_changed(self) -> Mapping[str, tuple[Head, str]]:
        try:
            names = set(skill_folders(self.root, links=True))
            self._away = False
        except OSError as exc:
            names = set(self._files)  # the last ones that could be seen stay
            if not self._away:
                why = reason_of(exc)
                log.warning("skills unreadable", origin=self.origin, why=why, doing="keeping those known")
            self._away = True
        for name in names - self._files.keys():
            report = partial(self._report, name)
            self._files[name] = WatchedFile(self.root / name / SKILL, self._load, report)
        for name in self._files.keys() - names:
            del self._files[name]
        looked = {name: file.read_if_changed() for name, file in self._files.items()}
        return {name: parsed for name, parsed in looked.items() if parsed is not None}

    def _report(self, name: str, exc: Exception) -> None:
        path = f"skills/{name}/{SKILL}"
        doing = "keeping its last good text, if any"
        log.warning("skill skipped", path=path, origin=self.origin, why=reason_of(exc), doing=doing)

    def _load(self, path: Path) -> tuple[Head, str]:
        head, text = parse_skill(read_below(path.parent, path.name, links=True))
        if not head.description:
            log.warning(NO_DESCRIPTION, path=f"skills/{path.parent.name}/{SKILL}", origin=self.origin)
        return head, text


def path_fault(parts: Sequence[str]) -> str | None:
    """Return why a file in the folder of skills is not found as a skill, None if it is no such file or
    will be found. `parts` are those of its path below that folder."""
    if len(parts) > 2 or (parts[-1].lower() not in (SKILL.lower(), "skills.md") and len(parts) != 1):
        return None
    right = f"a skill is a file 'skills/<name>/{SKILL}'"
    if len(parts) == 1:
        return f"it is in no folder of its own; {right}" if parts[0].lower().endswith(".md") else None
    if not _NAME.fullmatch(parts[0]):
        return "the name of its folder may have letters, digits, '.', '_' and '-' only, at most 64"
    return None if parts[1] == SKILL else f"its name is {parts[1]!r}; {right}"


def skill_folders(root: Path, inside: str = "", *, links: bool) -> list[str]:
    """Return the names of the folders that may hold a skill, sorted; none without a root."""
    try:
        entries = entries_below(root, inside, links=links)
        return sorted(name for name, is_folder in entries if is_folder and _NAME.fullmatch(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def reason_of(exc: Exception) -> str:
    """Return the text of a fault without the path, which is not for the log."""
    if isinstance(exc, UnicodeDecodeError):
        return "it is not text; save it as UTF-8"
    return (exc.strerror or str(exc)) if isinstance(exc, OSError) else str(exc)
