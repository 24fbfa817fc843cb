"""What a subagent is told: who it is, and its task."""

from __future__ import annotations

import platform
from importlib.resources import files

from shared.messages.subagent import SubagentTask


def subagent_system(name: str = "Shoal") -> str:
    """Its system text; the same for all of a process."""
    system = f"{platform.system()} ({platform.machine()}), Python {platform.python_version()}"
    text = files("worker.prompts").joinpath("subagent.md").read_text(encoding="utf-8")
    return text.format(name=" ".join(name.split()), system=system).strip()


def subagent_task(task: SubagentTask) -> str:
    """The one message that it gets."""
    return f"{task.task}\n\n# Context\n\n{task.context}" if task.context.strip() else task.task
