"""`/busy`."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.settings import InboxSettings
from shared.settings.sections.chats import POLICIES
from shared.settings.sections.chats import Busy as Policy

DEFAULT: Final = "default"
MEANINGS: Final[dict[Policy, str]] = {
    "queue": "it is answered by itself, after the one before it",
    "steer": "it joins what I am doing, at the next step",
    "merge": "what you write within {merge_s:g} s is one message to me",
    "interrupt": "I stop what I am doing, and begin with it",
    "reject": "I do not read it, and say so",
}


class BusyCommand:
    """Shows or sets what happens to a message that comes while a turn runs."""

    name = "busy"
    about = "what happens to a message while I am busy: `/busy " + "|".join(POLICIES) + "`"

    def __init__(self, settings: InboxSettings, by_channel: dict[str, Policy]) -> None:
        self._settings = settings
        self._by_channel = by_channel

    async def answer(self, context: CommandContext) -> CommandAnswer:
        usual = self._by_channel.get(context.message.channel, self._settings.busy)
        wanted = context.argument.strip("`'\" ").casefold()
        if not wanted:
            return CommandAnswer(self._list(context.state.busy, usual))
        if wanted == DEFAULT:
            return CommandAnswer(f"As usual here, `{usual}`: {self._meaning(usual)}.", change="busy")
        for policy in POLICIES:
            if policy == wanted:
                text = f"From now on `{policy}`. When you write while I am busy: {self._meaning(policy)}."
                return CommandAnswer(text, change="busy", busy=policy)
        return CommandAnswer(f"I do not know that one. These are: {', '.join(f'`{one}`' for one in POLICIES)}.")

    def _list(self, chosen: str, usual: Policy) -> str:
        current = chosen if chosen in POLICIES else usual
        rows = [
            f"- `{policy}`{' **(in use)**' if policy == current else ''}: {self._meaning(policy)}"
            for policy in POLICIES
        ]
        lines = ["When you write while I am busy:", "", *rows, "", f"The usual one here is `{usual}`."]
        return "\n".join([*lines, f"Choose with `/busy NAME`; `/busy {DEFAULT}` goes back."])

    def _meaning(self, policy: Policy) -> str:
        return MEANINGS[policy].format(merge_s=self._settings.merge_s)
