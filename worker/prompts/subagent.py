"""The prompt of a subagent: its system text, and its task."""

from __future__ import annotations

import platform
from importlib.resources import files

from shared.messages.subagent import SubagentTask


def subagent_system(name: str = "Shoal") -> str:
    """Return its system text; the same for all subagents of a process."""
    system = f"{platform.system()} ({platform.machine()}), Python {platform.python_version()}"
    text = files("worker.prompts").joinpath("subagent.md").read_text(encoding="utf-8")
    return text.format(name=" ".join(name.split()), system=system).strip()


def subagent_task(task: SubagentTask) -> str:
    """Return the one message that it gets."""
    return f"{task.task}\n\n# Context\n\n{task.context}" if task.context.strip() else task.task
