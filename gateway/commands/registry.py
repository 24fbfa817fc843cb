"""The commands of a gateway by their words: Shoal's own, and those of installed packages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from gateway.commands.background import answer_cron, answer_jobs
from gateway.commands.choices import answer_busy, answer_model, answer_trust, answer_voice
from gateway.commands.command import Command, CommandAnswer, CommandContext
from gateway.commands.conversation import (
    answer_always,
    answer_forget,
    answer_new,
    answer_pair,
    answer_question,
    answer_stop,
)
from gateway.commands.overview import answer_folder, answer_memory, answer_status, answer_where
from gateway.commands.retry import answer_retry
from shared.plugins import LoadedPlugin, load_plugins
from shared.settings import PluginSettings, Settings
from shared.settings.sections.chats import POLICIES, busy_by_channel
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions
from shared.store.subagents.subagents import Subagents

OWN: Final = (
    "help",
    "new",
    "stop",
    "retry",
    "status",
    "where",
    "model",
    "busy",
    "jobs",
    "memory",
    "cron",
    "forget",
    "yes",
    "no",
    "always",
    "trust",
)
"""The words of Shoal's own commands in order. `/pair` is one more where there are `admins`,
`/voice` where there is a `voice.speaker`, `/folder` where there are `workspace.folders`."""

_NAME: Final = re.compile(r"[a-z0-9_]{1,32}")


class OwnCommand(msgspec.Struct, frozen=True):
    """A command of Shoal's own. A text alone as its reply changes nothing."""

    name: str
    about: str
    reply: Callable[[CommandContext], Awaitable[CommandAnswer | str]]

    async def answer(self, context: CommandContext) -> CommandAnswer:
        answer = await self.reply(context)
        return CommandAnswer(answer) if isinstance(answer, str) else answer


def build_commands(settings: Settings, client: RedisClient, extra: Iterable[Command] = ()) -> Mapping[str, Command]:
    """Return Shoal's commands by word, then those of `extra`."""
    model = settings.model
    sessions = Sessions(client)
    schedules = Schedules(client, settings.cron)
    commands: dict[str, Command] = {}
    own = [
        OwnCommand("help", "list these commands", partial(_answer_help, commands)),
        OwnCommand("new", "begin a new conversation in this chat, without what was said", answer_new),
        OwnCommand("stop", "stop what I am doing", answer_stop),
        OwnCommand(
            "retry", "answer your last message again, or `/retry NEW TEXT` in its place", partial(answer_retry, client)
        ),
        OwnCommand("status", "show what is going on", partial(answer_status, model, sessions)),
        OwnCommand("where", "say where your message is, if I have not answered it", partial(answer_where, model)),
        OwnCommand("model", "list the models, or choose one: `/model NAME`", partial(answer_model, model)),
        OwnCommand(
            "busy",
            f"what happens to a message while I am busy: `/busy {'|'.join(POLICIES)}`",
            partial(answer_busy, settings.inbox, busy_by_channel(settings.channels)),
        ),
        OwnCommand(
            "jobs",
            "list what I do in the background; `/jobs cancel ID`, `/jobs cancel all`",
            partial(answer_jobs, Subagents(client)),
        ),
        OwnCommand(
            "memory",
            "show what I remember; `/memory search WORDS`, `/memory history`, `/memory restore CODE`",
            partial(answer_memory, MemoryStore(client), sessions),
        ),
        OwnCommand("cron", "list what is planned here; `/cron remove ID`", partial(answer_cron, schedules)),
        OwnCommand("forget", "delete my memory and this conversation", partial(answer_forget, sessions, schedules)),
        OwnCommand("yes", "let me do what I asked about: `/yes [ID]`", partial(answer_question, "yes")),
        OwnCommand("no", "do not let me do what I asked about: `/no [ID]`", partial(answer_question, "no")),
        OwnCommand("always", "a yes for later calls, too: `/always ID`; list them, `/always off ID`", answer_always),
        OwnCommand("trust", "trust the texts of others that I read here, and ask no more", answer_trust),
    ]
    if any(table.get("admins") for table in settings.channels.values()):
        own.append(OwnCommand("pair", "let somebody in by the code they were sent: `/pair CODE`", answer_pair))
    if settings.voice.speaker:
        about = "whether I answer your recordings with one: `/voice on`, `/voice off`"
        own.append(OwnCommand("voice", about, answer_voice))
    if settings.workspace.folders:
        about = "show the folder that I work in; `/folder NAME`"
        own.append(OwnCommand("folder", about, partial(answer_folder, settings.workspace)))
    commands.update((command.name, command) for command in (*own, *extra))
    return commands


async def _answer_help(commands: Mapping[str, Command], _: CommandContext) -> str:
    rows = [f"- `/{command.name}` {command.about}" for command in commands.values()]
    return "\n".join(["You can say:", "", *rows])


def plugin_commands(plugins: PluginSettings) -> list[Command]:
    """Load the commands of packages, by name. Raises SettingsError for one that does not fit."""
    loaded = load_plugins("shoal.commands", off=plugins.off, reserved=(*OWN, "pair", "voice", "folder"))
    for plugin in loaded:
        if (why := _fault_of(plugin)) is not None:
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
