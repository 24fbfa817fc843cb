"""The `shoal` command for operators."""

from __future__ import annotations

import importlib
import sys
from typing import IO, Any, Final

import click

from shared.errors import SettingsError, ShoalError
from shared.version import VERSION

_COMMANDS: Final = {
    "config": "shared.console.config:config",
    "status": "shared.console.status:status",
    "up": "shared.console.up:up",
}


class _Failed(click.ClickException):
    """The lines of an error, as they are."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file or sys.stderr)


class _WrongSettings(_Failed):
    exit_code = 2


class _Commands(click.Group):
    """Imports a command when it is asked for: `shoal config check` does not wait for what `shoal up` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as exc:
            raise _WrongSettings(str(exc)) from None
        except ShoalError as exc:
            raise _Failed(str(exc)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="shoal")
def cli() -> None:
    """Run Shoal and look after it."""


def main() -> None:
    """The console script. Never returns: it ends the process with the command's exit code."""
    cli(prog_name="shoal")
