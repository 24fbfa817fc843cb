"""`/model` and `/busy`: list the choices of a chat, or make one."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.settings import ModelSettings
from shared.settings.sections.chats import POLICIES, InboxSettings
from shared.settings.sections.chats import Busy as Policy

DEFAULT: Final = "default"
MEANINGS: Final[dict[Policy, str]] = {
    "queue": "it is answered by itself, after the one before it",
    "steer": "it joins what I am doing, at the next step",
    "merge": "what you write within {merge_s:g} s is one message to me",
    "interrupt": "I stop what I am doing, and begin with it",
    "reject": "I do not read it, and say so",
}


async def answer_model(settings: ModelSettings, context: CommandContext) -> CommandAnswer | str:
    """List the models that an operator offers (`[model.presets]`), or choose one for the chat."""
    wanted = context.argument.strip("`'\" ")
    if not wanted:
        return _list_models(settings, context.state.preset)
    if wanted.casefold() == DEFAULT:
        text = f"From your next message on I use the usual model, `{settings.name}`."
        return CommandAnswer(text, change="preset")
    for name, preset in settings.presets.items():
        if name.casefold() == wanted.casefold():
            text = f"From your next message on I use `{name}` ({preset.name})."
            return CommandAnswer(text, change="preset", preset=name)
    return f"There is no such model here. These are: {_quoted_names((DEFAULT, *settings.presets))}."


def _list_models(settings: ModelSettings, chosen: str) -> str:
    presets = settings.presets
    models = [(DEFAULT, settings.name, "the usual one", chosen not in presets)]
    models += [(name, one.name, one.about, chosen == name) for name, one in presets.items()]
    rows = [
        f"- `{name}`: {model}{', ' if about else ''}{about}{' **(in use)**' if current else ''}"
        for name, model, about, current in models
    ]
    lines = ["These models are there:", "", *rows, ""]
    if chosen and chosen not in presets:
        lines.append(f"`{chosen}`, which was chosen for this chat, is not offered any more.")
    lines.append("Choose with `/model NAME`." if presets else "An operator can offer more, in `[model.presets]`.")
    return "\n".join(lines)


async def answer_busy(
    settings: InboxSettings, by_channel: dict[str, Policy], context: CommandContext
) -> CommandAnswer | str:
    """Show or set what happens to a message that comes while a turn runs."""
    usual = by_channel.get(context.message.channel, settings.busy)
    wanted = context.argument.strip("`'\" ").casefold()
    meanings = {policy: MEANINGS[policy].format(merge_s=settings.merge_s) for policy in POLICIES}
    if wanted == DEFAULT:
        return CommandAnswer(f"As usual here, `{usual}`: {meanings[usual]}.", change="busy")
    for policy in POLICIES:
        if policy == wanted:
            text = f"From now on `{policy}`. When you write while I am busy: {meanings[policy]}."
            return CommandAnswer(text, change="busy", busy=policy)
    if wanted:
        return f"I do not know that one. These are: {_quoted_names(POLICIES)}."
    chosen = context.state.busy
    current = chosen if chosen in POLICIES else usual
    marks = {current: " **(in use)**"}
    rows = [f"- `{one}`{marks.get(one, '')}: {about}" for one, about in meanings.items()]
    lines = ["When you write while I am busy:", "", *rows, "", f"The usual one here is `{usual}`."]
    return "\n".join([*lines, f"Choose with `/busy NAME`; `/busy {DEFAULT}` goes back."])


def _quoted_names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
