"""`/yes` and `/no`: answers to the question whether a tool may run, for channels without
buttons."""

from __future__ import annotations

from typing import Literal

from gateway.commands.command import CommandAnswer, CommandContext
from shared.store.turns.approvals import REFUSALS, ApprovalOutcome


class ApproveCommand:
    """Answers the question that the chat's turn waits for, or the one whose id is named."""

    def __init__(self, name: Literal["yes", "no"]) -> None:
        self.name: Literal["yes", "no"] = name
        self.about = f"{'let me do' if name == 'yes' else 'do not let me do'} what I asked about: `/{name} [ID]`"

    async def answer(self, context: CommandContext) -> CommandAnswer:
        asks = context.state.open_question
        named = context.argument.strip("`'\" ").casefold()
        if asks is None:
            return CommandAnswer("I am not waiting for a yes to anything." if not named else not_counted("over"))
        if named and named != asks.id:
            return CommandAnswer(not_counted("unknown"))
        if asks.people and context.message.sender_id not in asks.people:
            return CommandAnswer(not_counted("not_allowed"))
        text = f"I run `{asks.tool}` now." if self.name == "yes" else f"I do not run `{asks.tool}`."
        return CommandAnswer(text, change=self.name)


def not_counted(why: ApprovalOutcome) -> str:
    """Return the reply to an answer that does not count."""
    text = REFUSALS[why]
    return f"{text[:1].upper()}{text[1:]}."
