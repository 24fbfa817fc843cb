"""The system text: who the agent is, then what the operator wrote for it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from worker.agent.prompt import system_prompt

BOOTSTRAP: Final = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md")


def system_text(agent_dir: Path) -> str:
    """The same text for every turn of a process. Of the bootstrap files in `agent_dir` the missing ones are skipped.

    Raises OSError or UnicodeDecodeError for one that is there and cannot be read: an agent without its rules must
    not start.
    """
    identity = files("worker.prompts").joinpath("identity.md").read_text(encoding="utf-8")
    return system_prompt([identity, *(_bootstrap(agent_dir / name) for name in BOOTSTRAP)])


def _bootstrap(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return f"## {path.name}\n\n{text}" if text else ""
