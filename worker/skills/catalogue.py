"""The available skills: built-in ones, the operator's, and those of an agent's workspace."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from worker.skills.below import read_below
from worker.skills.front_matter import BadSkill, Head, parse_skill
from worker.skills.skill import Skill
from worker.skills.skill_folder import NO_DESCRIPTION, SKILL, CheckInterval, SkillFolder, log, reason_of, skill_folders

OWN: Final = "skills"  # the folder of a workspace in which an agent writes its own skills
BUILT_IN: Final = Path(__file__).parent
COMMAND_BYTES: Final = 1024 * 1024  # of skills that each command can read
OWN_LIMIT: Final = 50  # the most skills of a workspace that are listed
PROGRAM_KEPT_S: Final = 30.0  # a look-up of a program walks through all of PATH
_LOGGED_LIMIT: Final = 256
_PROGRAMS_LIMIT: Final = 1000

Find = Callable[[str], str | None]


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
        self._shelves = (SkillFolder(built_in, "built-in"), SkillFolder(agent_dir / "skills", "operator"))
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
                        head.description or name,
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

    def command_files(self) -> dict[str, bytes]:
        """Return the files of those skills that have more than instructions, by `<name>/<path>`, up
        to COMMAND_BYTES in all: a skill is whole or not there. Blocking."""
        found: dict[str, bytes] = {}
        left = COMMAND_BYTES
        for skill in self._skills:
            files = skill.files()
            size_bytes = sum(map(len, files.values()))
            if size_bytes > left:
                self._log_once("skill too big for commands", skill.name)
                continue
            left -= size_bytes
            found |= {f"{skill.name}/{path}": data for path, data in files.items()}
        return found

    def workspace_skills(self, workspace: Path) -> tuple[Skill, ...]:
        """Return the skills that an agent wrote into the folder OWN of its workspace, by name, at
        most 50. They are never `always`, and never have the name of a skill that `skills` returned
        last. A broken one is listed as not available, with the reason. Blocking, for use in a thread."""
        used_names = {skill.name.lower() for skill in self._skills}
        found: list[Skill] = []
        try:
            names = skill_folders(workspace, OWN, links=False)
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
                why = reason_of(exc)
                self._log_once("skill skipped", name, why=why)
                if isinstance(exc, BadSkill):
                    needs = (f"a {SKILL} that can be read",)
                    found.append(Skill(name, f"skipped: {why}", "", workspace, prefix, "agent", missing=needs))
                continue
            if not head.description:
                self._log_once(NO_DESCRIPTION, name)
            missing = self._missing(head)
            found.append(Skill(name, head.description or name, "", workspace, prefix, "agent", missing=missing))
        return tuple(found)

    def _log_once(self, event: str, name: str, **why: str) -> None:
        key = (name, why.get("why", event))
        if key not in self._logged and len(self._logged) < _LOGGED_LIMIT:
            self._logged.add(key)
            log.warning(event, path=f"{OWN}/{name}/{SKILL}", origin="agent", **why)

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
