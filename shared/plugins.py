"""Hooks, tools, commands and channels of installed packages, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

import msgspec

from shared.errors import SettingsError
from shared.log import logger

Group = Literal["shoal.hooks", "shoal.tools", "shoal.commands", "shoal.channels"]
"""Where a package says what it brings; each entry is a callable without arguments that makes it.
One of a channel is left alone until somebody asks for the channel by its name, and gets its
settings (`gateway.platform.registry`)."""

KINDS: Final[dict[Group, str]] = {
    "shoal.hooks": "hook",
    "shoal.tools": "tool",
    "shoal.commands": "command",
    "shoal.channels": "channel",
}
REASON_CHARS: Final = 200

log = logger("plugins")


class LoadedPlugin(msgspec.Struct, frozen=True):
    """One plugin: its entry point's name, who brought it, and what the entry point made."""

    group: Group
    name: str
    package: str
    version: str
    made: Any

    def refused(self, why: str) -> SettingsError:
        """The error that ends the start because of this plugin. `why` ends a sentence that begins
        with its name."""
        return SettingsError(
            f"the {KINDS[self.group]} {self.name!r} of the package '{self.package} {self.version}' {why}; "
            f"mend or remove the package, or add {self.name!r} to plugins.off"
        )

    def cannot_be_made(self, exc: Exception) -> SettingsError:
        """The same for one whose code raised `exc`."""
        reason = " ".join(str(exc).split())[:REASON_CHARS]
        return self.refused(f"cannot be made: {type(exc).__name__}: {reason}")


def load_plugins(
    group: Group,
    *,
    off: Collection[str] = (),
    reserved: Collection[str] = (),
    found: Callable[[str], Iterable[EntryPoint]] | None = None,
) -> list[LoadedPlugin]:
    """Make what the installed packages bring, by name, so that every process has the same in the
    same order.

    An entry whose name is in `off` is not even imported. `taken` are names that no plugin may have:
    built-in ones. `found` gives the entry points of a group, by default those of all installed
    packages. Looking for them takes some ten milliseconds: for the start of a process, not for a
    message. Raises SettingsError, one line that names the plugin and its package.
    """
    loaded: dict[str, LoadedPlugin] = {}
    for one in found_plugins(group, off=off, reserved=reserved, found=found):
        try:
            made = one.made()()
        except Exception as exc:
            raise one.cannot_be_made(exc) from exc
        loaded[one.name] = msgspec.structs.replace(one, made=made)
    if loaded:
        told = [f"{plugin.name} ({plugin.package} {plugin.version})" for plugin in loaded.values()]
        log.info("plugins loaded", kind=KINDS[group], plugins=told)
    return list(loaded.values())


def found_plugins(
    group: Group,
    *,
    off: Collection[str] = (),
    reserved: Collection[str] = (),
    found: Callable[[str], Iterable[EntryPoint]] | None = None,
) -> Iterator[LoadedPlugin]:
    """The same without importing anything: `made` is what loads the entry point."""
    packages: dict[str, str] = {}
    for entry in sorted(found(group) if found else entry_points(group=group), key=lambda entry: entry.name):
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
