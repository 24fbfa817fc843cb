"""One skill."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from worker.skills.below import names_below, read_below, read_bytes_below
from worker.skills.skill_folder import SKILL, Origin


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

    def files(self) -> dict[str, bytes]:
        """Return its files by path, if it has more than its instructions, for commands that run
        them. One that cannot be read is left out. Blocking."""
        found: dict[str, bytes] = {}
        names = self.names()
        for path in names if names != [SKILL] else ():
            with contextlib.suppress(OSError, ValueError):
                found[path] = read_bytes_below(self.root, f"{self.prefix}{path}", links=self.origin != "agent")
        return found

    def names(self) -> list[str]:
        """Return the paths of its files. Blocking."""
        return names_below(self.root, self.prefix, links=self.origin != "agent")
