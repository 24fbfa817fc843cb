"""Hooks, tools and commands of installed packages, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

import msgspec

from shared.errors import SettingsError
from shared.log import logger

Group = Literal["shoal.hooks", "shoal.tools", "shoal.commands"]
"""Where a package says what it brings; each entry is a callable without arguments that makes it."""

KINDS: Final[dict[Group, str]] = {"shoal.hooks": "hook", "shoal.tools": "tool", "shoal.commands": "command"}
REASON_CHARS: Final = 200

log = logger("plugins")


class Loaded(msgspec.Struct, frozen=True):
    """One plugin: its entry point's name, who brought it, and what the entry point made."""

    group: Group
    name: str
    package: str
    version: str
    made: Any

    def refused(self, why: str) -> SettingsError:
        """The error that ends the start because of this plugin. `why` ends a sentence that begins with its name."""
        return _refused(self.group, self.name, f"{self.package} {self.version}", why)


def load_plugins(
    group: Group,
    *,
    off: Collection[str] = (),
    taken: Collection[str] = (),
    found: Callable[[str], Iterable[EntryPoint]] | None = None,
) -> list[Loaded]:
    """Make what the installed packages bring, by name, so that every process has the same in the same order.

    An entry whose name is in `off` is not even imported. `taken` are names that no plugin may have: built-in ones.
    `found` gives the entry points of a group, by default those of all installed packages. Looking for them takes some
    ten milliseconds: for the start of a process, not for a message. Raises SettingsError, one line that names the
    plugin and its package.
    """
    loaded: dict[str, Loaded] = {}
    for entry in sorted(found(group) if found else entry_points(group=group), key=lambda entry: entry.name):
        if entry.name in off:
            continue
        package, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "?")
        if entry.name in taken:
            raise _refused(group, entry.name, f"{package} {version}", "has the name of a built-in one")
        if entry.name in loaded:
            other = loaded[entry.name].package
            raise _refused(group, entry.name, f"{package} {version}", f"has the name of one of the package {other!r}")
        try:
            made = entry.load()()
        except Exception as exc:
            reason = " ".join(str(exc).split())[:REASON_CHARS]
            raise _refused(
                group, entry.name, f"{package} {version}", f"cannot be made: {type(exc).__name__}: {reason}"
            ) from exc
        loaded[entry.name] = Loaded(group, entry.name, package, version, made)
    if loaded:
        told = [f"{plugin.name} ({plugin.package} {plugin.version})" for plugin in loaded.values()]
        log.info("plugins loaded", kind=KINDS[group], plugins=told)
    return list(loaded.values())


def _refused(group: Group, name: str, package: str, why: str) -> SettingsError:
    return SettingsError(
        f"the {KINDS[group]} {name!r} of the package {package!r} {why}; "
        f"mend or remove the package, or add {name!r} to plugins.off"
    )
