"""Hooks, tools, commands and channels of installed packages, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

import msgspec

from shared.errors import SettingsError
from shared.log import logger

Group = Literal["shoal.hooks", "shoal.tools", "shoal.commands", "shoal.channels"]
"""Entry-point groups; each entry is a callable without arguments that creates the plugin. A
channel's entry is loaded only when a channel of its name is configured, and gets its settings
(`gateway.platform.registry`)."""

KINDS: Final[dict[Group, str]] = {
    "shoal.hooks": "hook",
    "shoal.tools": "tool",
    "shoal.commands": "command",
    "shoal.channels": "channel",
}
REASON_CHARS: Final = 200
EntryPoints = Callable[[str], Iterable[EntryPoint]]

log = logger("plugins")


class LoadedPlugin(msgspec.Struct, frozen=True):
    """One plugin: its entry point's name, its package, and the object that the entry created."""

    group: Group
    name: str
    package: str
    version: str
    made: Any

    def refused(self, why: str) -> SettingsError:
        """Build the error that ends the start because of this plugin, `the tool 'x' <why>`."""
        package = f"the package '{self.package} {self.version}'"
        return SettingsError(
            f"the {KINDS[self.group]} {self.name!r} of {package} {why}; "
            f"mend or remove the package, or add {self.name!r} to plugins.off"
        )

    def cannot_be_made(self, exc: Exception) -> SettingsError:
        """Build the error for a plugin whose code raised `exc`."""
        reason = " ".join(str(exc).split())[:REASON_CHARS]
        return self.refused(f"cannot be made: {type(exc).__name__}: {reason}")


def load_plugins(
    group: Group,
    *,
    off: Collection[str] = (),
    reserved: Collection[str] = (),
    found: EntryPoints | None = None,
) -> list[LoadedPlugin]:
    """Create the plugins of the installed packages, sorted by name, so that every process has them
    in the same order. An entry whose name is in `off` is not even imported. `reserved` are built-in
    names that a plugin may not have. `found` returns the entry points of a group, by default those
    of all installed packages. The search takes some ten milliseconds: use it at start-up, not for a
    message. Raises SettingsError, one line that names the plugin and its package."""
    loaded: dict[str, LoadedPlugin] = {}
    for one in found_plugins(group, off=off, reserved=reserved, found=found):
        try:
            made = one.made()()
        except Exception as exc:
            raise one.cannot_be_made(exc) from exc
        loaded[one.name] = msgspec.structs.replace(one, made=made)
    if loaded:
        names = [f"{plugin.name} ({plugin.package} {plugin.version})" for plugin in loaded.values()]
        log.info("plugins loaded", kind=KINDS[group], plugins=names)
    return list(loaded.values())


def found_plugins(
    group: Group,
    *,
    off: Collection[str] = (),
    reserved: Collection[str] = (),
    found: EntryPoints | None = None,
) -> Iterator[LoadedPlugin]:
    """Find plugins without importing them: `made` loads the entry point."""
    packages: dict[str, str] = {}
    entries = found(group) if found else entry_points(group=group)
    for entry in sorted(entries, key=lambda entry: entry.name):
        # Before anything of the package is imported: a broken plugin can be switched off.
        if entry.name in off:
            continue
        package, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "?")
        one = LoadedPlugin(group, entry.name, package, version, entry.load)
        if entry.name in reserved:
            raise one.refused("has the name of a built-in one")
        if entry.name in packages:
            raise one.refused(f"has the name of one of the package {packages[entry.name]!r}")
        packages[entry.name] = package
        yield one
