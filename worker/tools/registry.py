"""The built-in tools, by name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final, cast

from worker.agent.tools.tool import Tool

TOOLS: Final = {
    "calculate": "worker.tools.calculate:Calculate",
    "current_time": "worker.tools.current_time:CurrentTime",
    "roll_dice": "worker.tools.roll_dice:RollDice",
    "read_file": "worker.tools.files.read_file:ReadFile",
    "write_file": "worker.tools.files.write_file:WriteFile",
    "edit_file": "worker.tools.files.edit_file:EditFile",
    "list_dir": "worker.tools.files.list_dir:ListDir",
    "glob": "worker.tools.files.glob:Glob",
    "grep": "worker.tools.files.grep:Grep",
}


def build_tools(names: Iterable[str] = tuple(TOOLS)) -> tuple[Tool, ...]:
    """Return one of each named tool, in that order; imports only those. Raises KeyError for a name
    that is not in TOOLS."""
    return tuple(_build(TOOLS[name]) for name in names)


def _build(path: str) -> Tool:
    module, _, name = path.partition(":")
    return cast(Tool, getattr(import_module(module), name)())
