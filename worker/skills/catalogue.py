"""The available skills: built-in ones, the operator's, and those of an agent's workspace."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from worker.skills.below import entries_below, names_below, read_below
from worker.skills.front_matter import Head, parse_skill
from worker.skills.watched_files import CheckInterval, WatchedFile

SKILL: Final = "SKILL.md"
OWN: Final = "skills"  # the folder of a workspace in which an agent writes its own skills
BUILT_IN: Final = Path(__file__).parent
OWN_LIMIT: Final = 50  # the most skills of a workspace that are listed
PROGRAM_KEPT_S: Final = 30.0  # a look-up of a program walks through all of PATH
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOGGED_LIMIT: Final = 256
_PROGRAMS_LIMIT: Final = 1000

Origin = Literal["built-in", "operator", "agent"]
Find = Callable[[str], str | None]

log = logger("skills")


class Skill(msgspec.Struct, frozen=True):
    """One skill. `text` are its instructions; `missing` are its unmet requirements, such as `CLI:
    ffmpeg`. Its files lie in `prefix` below `root`."""

    name: str
    description: str
    text: str
    root: Path
    prefix: str = ""
    origin: Origin = "built-in"
    always: bool = False
    missing: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """The path under which the agent's file tools find it."""
        return f"skills/{self.name}/{SKILL}"

    @property
    def active(self) -> bool:
        """True if its full text belongs in the prompt."""
        return self.always and not self.missing

    def read(self, path: str) -> str:
        """Return the text of one of its files. Blocking; raises as `read_below` does."""
        return read_below(self.root, f"{self.prefix}{path}", links=self.origin != "agent")

    def names(self) -> list[str]:
        """Return the paths of its files. Blocking."""
        return names_below(self.root, self.prefix, links=self.origin != "agent")


class SkillCatalogue:
    """The skills of a worker. `environment` has names of set variables; `find` finds programs."""

    def __init__(
        self,
        agent_dir: Path,
        *,
        environment: Collection[str] = (),
        find: Find = shutil.which,
        clock: Clock = SYSTEM_CLOCK,
        built_in: Path = BUILT_IN,
    ) -> None:
        self._environment = frozenset(environment)
        self._find = find
        self._clock = clock
        self._programs: dict[str, tuple[bool, float]] = {}
        self._check_interval = CheckInterval(clock)
        self._shelves = (_SkillFolder(built_in, "built-in"), _SkillFolder(agent_dir / "skills", "operator"))
        self._skills: tuple[Skill, ...] = ()
        self._logged: set[tuple[str, str]] = set()

    def skills(self) -> tuple[Skill, ...]:
        """Return built-in skills and the operator's, by name; the operator's override built-in
        ones. The same object until one changes. Checks the files at most once a second."""
        if self._check_interval.due():
            found: dict[str, Skill] = {}
            for shelf in self._shelves:
                for name, (head, text) in shelf.read_changed().items():
                    found[name] = Skill(
                        name,
                        head.description,
                        text,
                        shelf.root / name,
                        origin=shelf.origin,
                        always=head.always,
                        missing=self._missing(head),
                    )
            skills = tuple(found[name] for name in sorted(found))
            if skills != self._skills:
                self._skills = skills
        return self._skills

    def workspace_skills(self, workspace: Path) -> tuple[Skill, ...]:
        """Return the skills that an agent wrote into the folder OWN of its workspace, by name, at
        most 50. They are never `always`, and never have the name of a skill that `skills` returned
        last. Blocking, for use in a thread; broken ones are skipped."""
        used_names = {skill.name.lower() for skill in self._skills}
        found: list[Skill] = []
        try:
            names = _folders(workspace, OWN, links=False)
        except OSError:
            names = []  # a link where the folder should be
        for name in names:
            if name.lower() in used_names or len(found) == OWN_LIMIT:
                continue
            prefix = f"{OWN}/{name}/"
            try:
                head, _ = parse_skill(read_below(workspace, f"{prefix}{SKILL}", links=False))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as exc:
                why = _reason(exc)
                if (name, why) not in self._logged and len(self._logged) < _LOGGED_LIMIT:
                    self._logged.add((name, why))
                    path = f"skills/{name}/{SKILL}"
                    log.warning("skill skipped", path=path, origin="agent", why=why)
                continue
            missing = self._missing(head)
            found.append(Skill(name, head.description, "", workspace, prefix, "agent", missing=missing))
        return tuple(found)

    def _missing(self, head: Head) -> tuple[str, ...]:
        programs = tuple(f"CLI: {name}" for name in head.bins if not self._has_program(name))
        return programs + tuple(f"ENV: {name}" for name in head.env if name not in self._environment)

    def _has_program(self, name: str) -> bool:
        now = self._clock.monotonic()
        there, until = self._programs.get(name, (False, now))
        if until <= now:
            if len(self._programs) >= _PROGRAMS_LIMIT:  # an agent names what it likes in its skills
                self._programs.clear()
            there = self._find(name) is not None
            self._programs[name] = (there, now + PROGRAM_KEPT_S)
        return there


class _SkillFolder:
    """A folder of skills that only the operator, or a release, writes."""

    def __init__(self, root: Path, origin: Origin) -> None:
        self.root = root
        self.origin: Origin = origin
        self._files: dict[str, WatchedFile[tuple[Head, str]]] = {}
        self._away = False

    def read_changed(self) -> Mapping[str, tuple[Head, str]]:
        try:
            names = set(_folders(self.root, links=True))
            self._away = False
        except OSError as exc:
            names = set(self._files)  # the last ones that could be seen stay
            if not self._away:
                why = _reason(exc)
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
        log.warning("skill skipped", path=path, origin=self.origin, why=_reason(exc), doing=doing)


def _load(path: Path) -> tuple[Head, str]:
    return parse_skill(read_below(path.parent, path.name, links=True))


def _folders(root: Path, inside: str = "", *, links: bool) -> list[str]:
    """Return the names of the folders that may hold a skill, sorted; none without a root."""
    try:
        entries = entries_below(root, inside, links=links)
        return sorted(name for name, is_folder in entries if is_folder and _NAME.fullmatch(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _reason(exc: Exception) -> str:
    return (exc.strerror or str(exc)) if isinstance(exc, OSError) else str(exc)
