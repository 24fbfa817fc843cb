"""`/help`."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.commands.command import Command, CommandAnswer, CommandContext


class HelpCommand:
    """Lists the commands that `commands` holds when it is asked."""

    name = "help"
    about = "list these commands"

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands

    async def answer(self, context: CommandContext) -> CommandAnswer:
        rows = [f"- `/{command.name}` {command.about}" for command in self._commands.values()]
        return CommandAnswer("\n".join(["You can say:", "", *rows]))
