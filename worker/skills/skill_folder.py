"""A folder of skills, watched for changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

from shared.log import logger
from worker.skills.below import entries_below, read_below
from worker.skills.front_matter import Head, parse_skill
from worker.skills.watched_files import WatchedFile

SKILL: Final = "SKILL.md"
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
            self._files[name] = WatchedFile(self.root / name / SKILL, _load, report)
        for name in self._files.keys() - names:
            del self._files[name]
        looked = {name: file.read_if_changed() for name, file in self._files.items()}
        return {name: parsed for name, parsed in looked.items() if parsed is not None}

    def _report(self, name: str, exc: Exception) -> None:
        path, doing = f"skills/{name}/{SKILL}", "keeping its last good text, if any"
        log.warning("skill skipped", path=path, origin=self.origin, why=reason_of(exc), doing=doing)


def _load(path: Path) -> tuple[Head, str]:
    return parse_skill(read_below(path.parent, path.name, links=True))


def skill_folders(root: Path, inside: str = "", *, links: bool) -> list[str]:
    """Return the names of the folders that may hold a skill, sorted; none without a root."""
    try:
        entries = entries_below(root, inside, links=links)
        return sorted(name for name, is_folder in entries if is_folder and _NAME.fullmatch(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def reason_of(exc: Exception) -> str:
    """Return the text of a fault without the path, which is not for the log."""
    return (exc.strerror or str(exc)) if isinstance(exc, OSError) else str(exc)
