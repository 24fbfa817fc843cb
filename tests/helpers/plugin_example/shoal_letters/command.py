"""`/letters some words` counts them without asking a model."""

from __future__ import annotations

from shoal.plugin import CommandAnswer, CommandContext


class Letters:
    """Answers `11 letters.`"""

    name = "letters"
    about = "count the letters of what you write after it"

    async def answer(self, context: CommandContext) -> CommandAnswer:
        return CommandAnswer(f"{sum(sign.isalpha() for sign in context.argument)} letters.")
