"""The `shoal` command for operators.

Exit codes: 0 fine, 1 it could not be done or something is wrong, 2 wrong usage or settings, 3 Redis
is away, 130 Ctrl-C. A command's file is imported for its help and for completion, too: what it
needs to run it imports then.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from shared.errors import RedisAway, SettingsError, ShoalError
from shared.version import VERSION


class _CommandPlace(NamedTuple):
    """Module of a command and its line in `shoal --help`."""

    module: str
    help: str


_COMMANDS: Final = {
    "audit": _CommandPlace("console.access", "Show refusals, pairing, approvals and commands run."),
    "chat": _CommandPlace("console.chat.command", "Talk to Shoal through its web gateway."),
    "completion": _CommandPlace("console.completion", "Print the script that completes commands in a shell."),
    "config": _CommandPlace("console.config", "Check, show or trust the settings."),
    "cron": _CommandPlace("console.cron", "Manage schedules of chats."),
    "dead": _CommandPlace("console.dead", "Manage dead letters: messages that were given up."),
    "doctor": _CommandPlace("console.doctor.command", "Check everything, and say what to do."),
    "init": _CommandPlace("console.init.command", "Choose a model, test it, and write the settings."),
    "jobs": _CommandPlace("console.jobs", "Manage background jobs of agents (subagents)."),
    "logs": _CommandPlace("console.up.logs", "Show the log of `shoal up`."),
    "open": _CommandPlace("console.page", "Open the page of this machine in a browser."),
    "pair": _CommandPlace("console.access", "Approve or revoke access on chat platforms."),
    "session": _CommandPlace("console.sessions", "Manage conversations and their memory."),
    "status": _CommandPlace("console.top.command", "Show problems, queues, workers and gateways."),
    "token": _CommandPlace("console.page", "Print the owner's token."),
    "top": _CommandPlace("console.top.command", "Watch the fleet, live."),
    "up": _CommandPlace("console.up.command", "Run all of Shoal on this machine."),
}


class _Commands(click.Group):
    """Imports a command when it is asked for: none waits for what another needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name].module), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as exc:  # click knows none of ours before they are asked for
            raise click.NoSuchCommand(exc.command_name, possibilities=_COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        fitting = (name for name in _COMMANDS if name.startswith(incomplete))
        return [CompletionItem(name, help=_COMMANDS[name].help) for name in fitting]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ShoalError as exc:
            click.echo(str(exc), err=True)
            sys.exit(2 if isinstance(exc, SettingsError) else 3 if isinstance(exc, RedisAway) else 1)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="shoal")
def cli() -> None:
    """Run Shoal and look after it."""


def main() -> None:
    """The console script. Never returns: it ends the process with the command's exit code."""
    cli(prog_name="shoal")
