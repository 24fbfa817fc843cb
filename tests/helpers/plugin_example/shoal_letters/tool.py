"""Models are bad at counting letters."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shoal.plugin import Safety, ToolContext, ToolFailed


class CountLettersArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model gives."""

    text: Annotated[str, msgspec.Meta(description="Where to count.")]
    letter: Annotated[str, msgspec.Meta(description="One letter.", min_length=1, max_length=1)]


class CountLetters:
    """Answers `'r' is there 3 times`."""

    name = "count_letters"
    description = "How often a letter is in a text."
    parameters = CountLettersArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    async def run(self, arguments: CountLettersArguments, context: ToolContext) -> str:
        if not arguments.letter.isalpha():
            raise ToolFailed(f"{arguments.letter!r} is no letter; ask for one")
        return f"{arguments.letter!r} is there {arguments.text.lower().count(arguments.letter.lower())} times"
