"""The system text of a turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from shared.clock import SYSTEM_CLOCK, Clock
from worker.agent.model.prompt import system_prompt
from worker.prompts.bootstrap import Bootstrap
from worker.prompts.identity import identity
from worker.prompts.sections import active_section, memory_section, skill_list
from worker.skills.catalogue import Skill, SkillCatalogue


class SystemPrompt:
    """Identity, bootstrap files, memory, active skills, list of skills, in this order. As long as
    none of them changes, the bytes are the same, so that a provider's prompt cache hits.

    An operator's edit of a bootstrap file or a skill takes effect within about a second, without a
    restart: files are checked at most once a second and read only if they changed. The constructor
    raises SettingsError for a bootstrap file that exists and cannot be read.
    """

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
        """Return the whole text. `memory` is the MEMORY.md of the turn, `own` are the skills of its
        workspace."""
        skills = self._refresh_skills()
        listed = skill_list([*skills, *own]) if own else self._listed
        return system_prompt([self._identity, *self._bootstrap.parts(), memory_section(memory), self._active, listed])

    def _refresh_skills(self) -> Sequence[Skill]:
        skills = self._catalogue.skills()
        if skills is not self._skills:
            self._skills = skills
            self._active, self._listed = active_section(skills), skill_list(skills)
        return skills
