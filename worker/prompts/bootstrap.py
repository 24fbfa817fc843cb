"""The operator's instructions for the agent: AGENTS.md and its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import SettingsError
from shared.log import logger
from worker.skills.watched_files import CheckInterval, WatchedFile

BOOTSTRAP: Final = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md")

log = logger("prompt")


class Bootstrap:
    """The bootstrap files of a folder; missing and blank ones are skipped.

    Raises SettingsError for a file that exists and cannot be read, because an agent must not start
    without its rules. Later such a file keeps its last good text, and the log reports it once.
    """

    def __init__(self, agent_dir: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._agent_dir = agent_dir
        self._starting = True
        self._files = [WatchedFile(agent_dir / name, _read_text, self._reporter(name)) for name in BOOTSTRAP]
        self._seldom = CheckInterval(clock)
        self._parts: tuple[str, ...] = ()
        self.parts()
        self._starting = False

    def parts(self) -> tuple[str, ...]:
        """Return each file under its name, in a fixed order; the same object as long as nothing
        changed. Checks the files at most once a second, and reads only those that changed."""
        if self._seldom.due():
            texts = [(name, file.read_if_changed()) for name, file in zip(BOOTSTRAP, self._files, strict=True)]
            parts = tuple(f"## {name}\n\n{text}" for name, text in texts if text)
            if parts != self._parts:
                self._parts = parts
        return self._parts

    def _reporter(self, name: str) -> Callable[[Exception], None]:
        def tell(exc: Exception) -> None:
            why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            if self._starting:
                path = str(self._agent_dir / name)
                raise SettingsError(f"agent.dir: {path!r} cannot be read ({why}): mend it or take it away") from exc
            log.warning("bootstrap unreadable", file=name, why=why, doing="keeping its last good text, if any")

        return tell


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
