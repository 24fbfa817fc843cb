"""The agent's identity: its name, its platform, its files, its style."""

from __future__ import annotations

import platform
from collections.abc import Collection
from importlib.resources import files
from typing import Final

MESSAGE_RULE: Final = " Use the `message` tool only to reach a specific chat other than this one."


def identity(name: str = "Shoal", *, tools: Collection[str] = (), workspace: str = ".") -> str:
    """Return the first part of the system text; the same for all turns of a process.

    `tools` are the names of the tools on offer: the text mentions only those. `workspace` is its
    path as the model sees it.
    """
    system = f"{platform.system()} ({platform.machine()}), Python {platform.python_version()}"
    rule = MESSAGE_RULE if "message" in tools else ""
    parts = [_read_template("identity.md").format(name=" ".join(name.split()), system=system, message_rule=rule)]
    if "read_file" in tools:
        parts.append(_read_template("files.md").format(workspace=workspace))
    return "\n\n".join(part.strip() for part in parts)


def _read_template(name: str) -> str:
    return files("worker.prompts").joinpath(name).read_text(encoding="utf-8")
