"""The system text of a turn, and the operator's files in it: AGENTS.md and its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import SettingsError
from shared.log import logger
from worker.prompts.sections import active_section, identity, memory_section, skill_list, system_prompt
from worker.skills.catalogue import SkillCatalogue
from worker.skills.skill import Skill
from worker.skills.watched_files import CheckInterval, WatchedFile

BOOTSTRAP: Final = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md")

log = logger("prompt")


class Bootstrap:
    """The bootstrap files of a folder; missing and blank ones are skipped. Raises SettingsError for
    one that cannot be read, because an agent must not start without its rules. Later such a file
    keeps its last good text, and the log reports it once."""

    def __init__(self, agent_dir: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._agent_dir = agent_dir
        self._starting = True
        self._files = {
            name: WatchedFile(agent_dir / name, _read_text, partial(self._report, name)) for name in BOOTSTRAP
        }
        self._check_interval = CheckInterval(clock)
        self._parts: tuple[str, ...] = ()
        self.parts()
        self._starting = False

    def parts(self) -> tuple[str, ...]:
        """Return the files in order; the same object until one changes. Checks once a second."""
        if self._check_interval.due():
            texts = {name: file.read_if_changed() for name, file in self._files.items()}
            parts = tuple(f"## {name}\n\n{text}" for name, text in texts.items() if text)
            if parts != self._parts:
                self._parts = parts
        return self._parts

    def _report(self, name: str, exc: Exception) -> None:
        why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        if self._starting:
            path = str(self._agent_dir / name)
            text = f"agent.dir: {path!r} cannot be read ({why}): mend it or take it away"
            raise SettingsError(text) from exc
        log.warning("bootstrap unreadable", file=name, why=why, doing="keeping its last good text, if any")


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


class SystemPrompt:
    """Identity, bootstrap files, memory, active skills, list of skills, in this order. As long as
    none of them changes, the bytes are the same, so that a provider's prompt cache hits. An
    operator's edit of a bootstrap file or a skill takes effect within about a second, without a
    restart. The constructor raises SettingsError for a bootstrap file that cannot be read."""

    def __init__(
        self,
        agent_dir: Path,
        catalogue: SkillCatalogue,
        *,
        name: str = "Shoal",
        tools: Collection[str] = (),
        workspace: str = ".",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._identity = identity(name, tools=tools, workspace=workspace)
        self._bootstrap = Bootstrap(agent_dir, clock=clock)
        self._catalogue = catalogue
        self._skills: Sequence[Skill] | None = None
        self._active = self._listed = ""
        self._refresh_skills()  # now rather than in the first turn

    def render(self, memory: str = "", own: Sequence[Skill] = ()) -> str:
        """Return the whole text. `memory` is the turn's MEMORY.md, `own` its workspace's skills."""
        skills = self._refresh_skills()
        listed = skill_list([*skills, *own]) if own else self._listed
        parts = [self._identity, *self._bootstrap.parts(), memory_section(memory)]
        return system_prompt([*parts, self._active, listed])

    def _refresh_skills(self) -> Sequence[Skill]:
        skills = self._catalogue.skills()
        if skills is not self._skills:
            self._skills = skills
            self._active, self._listed = active_section(skills), skill_list(skills)
        return skills
