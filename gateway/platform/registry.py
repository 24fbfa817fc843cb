"""The chat platforms of an installation by name, and the making of one from its settings.

Shoal's own are in PLATFORMS; others come with installed packages (entry points `shoal.channels`). A
platform's code is imported only when its channel is wanted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from gateway.platform.access import AccessSettings
from gateway.platform.protocol import Platform
from shared.errors import SettingsError
from shared.plugins import LoadedPlugin, found_plugins
from shared.settings import Settings
from shared.settings.sections.webhooks import HOOK

PLATFORMS: Final[dict[str, str]] = {
    "discord": "gateway.channels.discord.channel:make",
    "email": "gateway.channels.email.channel:make",
    "feishu": "gateway.channels.feishu.channel:make",
    "matrix": "gateway.channels.matrix.channel:make",
    "slack": "gateway.channels.slack.channel:make",
    "telegram": "gateway.channels.telegram.channel:make",
    "whatsapp": "gateway.channels.whatsapp.channel:make",
}
"""Shoal's own platforms: the channel's name and its `PlatformFactory`."""

INSTALL: Final = "run `make channels`, or install Shoal with its extra 'channels'"


class Cursor(Protocol):
    """The position up to which a channel that listens alone has read, for the next listener."""

    def read(self) -> bytes:
        """Return what was saved last, b'' = nothing. Known once `Platform.listen` is called."""

    async def save(self, value: bytes) -> None:
        """Save a position. Does nothing when another replica listens now. Raises RedisAway."""


class PlatformContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a platform is made from: the channel's name, its table `[channels.<name>]`
    with secrets and `_file`s filled in (`gateway.platform.access.read_channel` makes a Struct of
    it), and all other settings. `cursor` is for the run mode exclusive only."""

    name: str
    table: Mapping[str, Any]
    settings: Settings
    cursor: Cursor


class BuiltPlatform(msgspec.Struct, frozen=True):
    """A platform that is not connected yet, and its access rules: usually its own settings."""

    platform: Platform
    rules: AccessSettings


PlatformFactory = Callable[[PlatformContext], BuiltPlatform]
"""Makes a platform without connecting. Raises SettingsError with every problem, one a line."""


def is_on(table: Mapping[str, Any]) -> bool:
    """Return whether a channel is turned on, which it is unless its table says `on = false`.
    Nothing else of the table is read, so a channel that is off may lack its secrets."""
    return str(table.get("on", True)).strip().lower() not in ("false", "0", "no", "off")


def platform_names(*, off: Collection[str] = ()) -> list[str]:
    """Return the names of all chat platforms. Raises SettingsError when two packages bring one."""
    return sorted({*PLATFORMS, *(one.name for one in _plugin_platforms(off))})


def make_platform(context: PlatformContext) -> BuiltPlatform:
    """Make the platform of this name, with checked settings. Raises SettingsError, one line a
    problem: an unknown name, libraries that are not installed, settings that do not fit."""
    off = context.settings.plugins.off
    if context.name in PLATFORMS:
        return _check_platform(context.name, _load_factory(context.name)(context))
    for one in _plugin_platforms(off):
        if one.name == context.name:
            try:
                return _check_platform(context.name, cast(PlatformFactory, one.made())(context))
            except SettingsError:
                raise
            except Exception as exc:
                raise one.cannot_be_made(exc) from exc
    names = ", ".join(platform_names(off=off)) or "none"
    raise SettingsError(f"channels.{context.name}: there is no chat platform of this name; there are: {names}")


def _plugin_platforms(off: Collection[str]) -> list[LoadedPlugin]:
    reserved = {*PLATFORMS, "web", "api", "cli", "system", HOOK}
    return list(found_plugins("shoal.channels", off=off, reserved=reserved))


def _load_factory(name: str) -> PlatformFactory:
    module, _, function = PLATFORMS[name].partition(":")
    try:
        return cast(PlatformFactory, getattr(importlib.import_module(module), function))
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] in ("gateway", "shared"):
            raise
        raise SettingsError(f"channels.{name} needs the library {exc.name!r}, which is missing: {INSTALL}") from exc


def _check_platform(name: str, built: BuiltPlatform) -> BuiltPlatform:
    """Return the platform if it can be run: a package's fault must show at start."""
    platform = built.platform
    if platform.name != name:
        raise SettingsError(f"the channel {name!r} calls itself {platform.name!r}; both names must be the same")
    if platform.run_mode not in platform.abilities.run_modes:
        modes = ", ".join(platform.abilities.run_modes)
        raise SettingsError(f"channels.{name}.run is {platform.run_mode!r}, which it cannot do; it can: {modes}")
    return built
