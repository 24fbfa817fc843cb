"""The built-in tools by name; tools and hooks of packages, checked before the first turn."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any, Final, cast, get_args

import msgspec

from shared.errors import BadInput
from shared.plugins import load_plugins
from shared.settings.sections.agents import PluginSettings
from worker.agent.hook import AgentHook
from worker.agent.tools.schema import object_schema
from worker.agent.tools.tool import Safety, Tool

TOOLS: Final = {
    "calculate": "worker.tools.calculate:Calculate",
    "current_time": "worker.tools.cron:CurrentTime",
    "roll_dice": "worker.tools.roll_dice:RollDice",
    "read_file": "worker.tools.files.read_file:ReadFile",
    "write_file": "worker.tools.files.edit_file:WriteFile",
    "edit_file": "worker.tools.files.edit_file:EditFile",
    "list_dir": "worker.tools.files.glob:ListDir",
    "glob": "worker.tools.files.glob:Glob",
    "grep": "worker.tools.files.grep:Grep",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The form of a function name that every provider accepts."""


def build_tools(names: Iterable[str] = tuple(TOOLS)) -> tuple[Tool, ...]:
    """Return the named tools, in that order, importing only those. Raises KeyError."""
    paths = (TOOLS[name].partition(":") for name in names)
    return tuple(cast(Tool, getattr(import_module(module), made)()) for module, _, made in paths)


def plugin_tools(plugins: PluginSettings, *, reserved: Collection[str] = tuple(TOOLS)) -> tuple[Tool, ...]:
    """Return the tools of installed packages, by name; none is named like one of `reserved`. Raises
    SettingsError for a tool that cannot be built or offered to a model."""
    loaded = load_plugins("shoal.tools", off=plugins.off, reserved=reserved)
    for plugin in loaded:
        if (why := _wrong_tool(plugin.made, plugin.name)) is not None:
            raise plugin.refused(why)
    return tuple(plugin.made for plugin in loaded)


def check_tools(tools: Iterable[Tool], *, reserved: Collection[str]) -> list[Tool]:
    """Return tools that a program brings, as they are. Raises BadInput for one that cannot be offered
    to a model, or has the name of another one."""
    names = set(reserved)
    for tool in (tools := list(tools)):
        name = getattr(tool, "name", type(tool).__name__)
        why = "has the name of another one" if name in names else _wrong_tool(tool, name)
        if why is not None:
            raise BadInput("bad_tool", f"the tool {name!r} {why}")
        names.add(name)
    return tools


def trusted_tools(tools: Iterable[Tool]) -> list[str]:
    """Return the names of tools whose results are never text of strangers, but for marks that they
    set: the built-in ones, and packages' tools that say so by `trusted_result`."""
    return [tool.name for tool in tools if tool.name in TOOLS or getattr(tool, "trusted_result", False) is True]


def plugin_hooks(plugins: PluginSettings) -> tuple[AgentHook, ...]:
    """Return the hooks of installed packages, by name. Raises SettingsError for a bad one."""
    loaded = load_plugins("shoal.hooks", off=plugins.off)
    for plugin in loaded:
        if not isinstance(plugin.made, AgentHook):
            what = type(plugin.made).__name__
            raise plugin.refused(f"is a {what}; its entry point must make an AgentHook")
    return tuple(plugin.made for plugin in loaded)


def _wrong_tool(tool: Any, name: str) -> str | None:
    needed = ("name", "description", "parameters", "safety", "timeout_s")
    if missing := [name for name in needed if not hasattr(tool, name)]:
        return f"has no {missing[0]!r}; its entry point must make a Tool"
    if not _NAME.fullmatch(name):
        return "has a name that a model cannot call; use 1 to 64 letters, digits, dashes and underscores"
    if tool.name != name:
        return f"calls itself {tool.name!r}; give the tool and its entry point one name"
    if not isinstance(tool.description, str) or not tool.description.strip():
        return "has no description; a model would not know what it is for"
    if tool.safety not in get_args(Safety):
        return f"has the safety {tool.safety!r}; it is one of {', '.join(get_args(Safety))}"
    if not isinstance(tool.timeout_s, int | float) or not tool.timeout_s > 0:
        return f"has timeout_s {tool.timeout_s!r}; give it seconds, more than 0"
    if not inspect.iscoroutinefunction(getattr(tool, "run", None)):
        return "has no `async def run(arguments, context)`"
    if not (isinstance(tool.parameters, type) and issubclass(tool.parameters, msgspec.Struct)):
        return "has parameters that are not a msgspec.Struct"
    try:
        object_schema(tool.parameters)
    except (TypeError, ValueError) as exc:
        return f"has parameters that no schema can be written of: {' '.join(str(exc).split())}"
    return None
