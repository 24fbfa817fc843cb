"""`/jobs`."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.store.subagents.subagents import SubagentInfo, Subagents

CANCEL: Final = ("cancel", "stop")
SHOWN: Final = 20

_STATES: Final = {"ok": "done", "timeout": "out of time", "poison": "failed"}


class JobsCommand:
    """Lists what runs in the background of a chat, and ends it."""

    name = "jobs"
    about = "list what I do in the background; `/jobs cancel ID`, `/jobs cancel all`"

    def __init__(self, children: Subagents) -> None:
        self._children = children

    async def answer(self, context: CommandContext) -> CommandAnswer:
        word, _, rest = context.argument.partition(" ")
        found = await self._children.of_session(context.message.session)
        if word.casefold() in CANCEL:
            return _cancelled(rest.strip("`'\" ").casefold(), [child for child in found if child.open])
        if word:
            return CommandAnswer("I know `/jobs`, `/jobs cancel ID` and `/jobs cancel all`.")
        if not found:
            return CommandAnswer("Nothing runs in the background of this chat, and nothing did within the last hour.")
        rows = [_row(child) for child in found[-SHOWN:]]
        running = sum(child.open for child in found)
        ended = f", {len(found) - running:,} ended within the hour" if running < len(found) else ""
        head = f"{counted(running, 'job')} in the background of this chat{ended}:"
        return CommandAnswer("\n".join([head, "", *rows]))


def _cancelled(id: str, running: list[SubagentInfo]) -> CommandAnswer:
    if not id:
        return CommandAnswer("Which one? `/jobs cancel ID` or `/jobs cancel all`; `/jobs` lists them.")
    if id == "all":
        if not running:
            return CommandAnswer("Nothing runs in the background.")
        return CommandAnswer(f"{counted(len(running), 'job')} cancelled.", change="cancel")
    for child in running:
        if child.task.id == id:
            return CommandAnswer(f"`{id}` ({child.task.label}) is cancelled.", change="cancel", child=id)
    return CommandAnswer(f"No job `{id[:32]}` runs in this chat; `/jobs` lists them.")


def _row(child: SubagentInfo) -> str:
    state = _STATES.get(child.state, child.state)
    label = child.task.label.replace("`", "'")
    spent = f"{counted(child.rounds, 'round')}, {counted(child.tokens, 'token')}, {_span(child.age_s)}"
    return f"- `{child.task.id}` **{state}** {label}: {spent}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
