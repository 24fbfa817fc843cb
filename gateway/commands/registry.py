"""The commands of a gateway by their words: Shoal's own, and those of installed packages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.commands.approve import ApproveCommand
from gateway.commands.busy import BusyCommand
from gateway.commands.command import Command
from gateway.commands.conversation import ForgetCommand, NewCommand, StopCommand
from gateway.commands.cron import CronCommand
from gateway.commands.help import HelpCommand
from gateway.commands.jobs import JobsCommand
from gateway.commands.memory import MemoryCommand
from gateway.commands.model import ModelCommand
from gateway.commands.pair import PairCommand
from gateway.commands.status import StatusCommand
from shared.plugins import LoadedPlugin, load_plugins
from shared.settings import PluginSettings, Settings
from shared.settings.sections.chats import busy_by_channel
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions
from shared.store.subagents.subagents import Subagents

GROUP: Final = "shoal.commands"
_NAME: Final = re.compile(r"[a-z0-9_]{1,32}")


OWN: Final = (
    *(kind.name for kind in (HelpCommand, NewCommand, StopCommand, StatusCommand, ModelCommand, BusyCommand)),
    *(kind.name for kind in (JobsCommand, MemoryCommand, CronCommand, ForgetCommand)),
    "yes",
    "no",
)
"""The words of Shoal's own commands, as they are listed. `/pair` is one more where a channel has
`admins`."""


def build_commands(settings: Settings, client: RedisClient, extra: Iterable[Command] = ()) -> Mapping[str, Command]:
    """Return Shoal's commands by word, then those of `extra`."""
    sessions, schedules = Sessions(client), Schedules(client, settings.cron)
    commands: dict[str, Command] = {}
    own: list[Command] = [
        HelpCommand(commands),
        NewCommand(),
        StopCommand(),
        StatusCommand(settings.model, client),
        ModelCommand(settings.model),
        BusyCommand(settings.inbox, busy_by_channel(settings.channels)),
        JobsCommand(Subagents(client)),
        MemoryCommand(MemoryStore(client), sessions),
        CronCommand(schedules),
        ForgetCommand(sessions, schedules),
        ApproveCommand("yes"),
        ApproveCommand("no"),
    ]
    if any(table.get("admins") for table in settings.channels.values()):
        own.append(PairCommand(client))
    commands.update((command.name, command) for command in (*own, *extra))
    return commands


def plugin_commands(plugins: PluginSettings) -> list[Command]:
    """Load the commands of installed packages, in the order of their names.

    Raises SettingsError for one that cannot be made or whose name cannot be typed.
    """
    loaded = load_plugins(GROUP, off=plugins.off, reserved=(*OWN, PairCommand.name))
    for plugin in loaded:
        why = _fault_of(plugin)
        if why is not None:
            raise plugin.refused(why)
    return [plugin.made for plugin in loaded]


def _fault_of(plugin: LoadedPlugin) -> str | None:
    command = plugin.made
    missing = [name for name in ("name", "about", "answer") if not hasattr(command, name)]
    if missing:
        return f"has no {missing[0]!r}; its entry point must make a Command"
    if not _NAME.fullmatch(plugin.name):
        return "has a name that nobody can say; use 1 to 32 lower-case letters, digits and underscores"
    if command.name != plugin.name:
        return f"calls itself {command.name!r}; give the command and its entry point one name"
    if not isinstance(command.about, str) or not command.about.strip() or "\n" in command.about:
        return "has no help of one line in `about`"
    if not inspect.iscoroutinefunction(command.answer):
        return "has no `async def answer(context)`"
    return None
