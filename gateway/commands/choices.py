"""`/model`, `/busy` and `/voice`: list the choices of a chat, or make one. `/trust`: trust what it
has read."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.messages.inbound import ADMIN
from shared.messages.sources import join_sources, merge_sources
from shared.settings import ModelSettings
from shared.settings.sections.chats import POLICIES, InboxSettings
from shared.settings.sections.chats import Busy as Policy
from shared.store.sessions.workspace_marks import folder_scope
from shared.store.turns.inbox import SHARED_SCOPE

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


async def answer_voice(context: CommandContext) -> CommandAnswer | str:
    """Show or set whether recordings are answered by recordings."""
    match context.argument.strip("`'\" ").casefold():
        case "on":
            text = "When you send me a recording, I answer with one, too, beside the text."
            return CommandAnswer(text, change="voice", preset="on")
        case "off":
            return CommandAnswer("I answer in writing.", change="voice")
        case "":
            now = "with a recording, too" if context.state.speaks else "in writing"
            return f"When you send me a recording, I answer {now}. Change it with `/voice on` and `/voice off`."
    return "I know `/voice on` and `/voice off`."


def _quoted_names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


async def answer_trust(context: CommandContext) -> CommandAnswer | str:
    """Clear the marks of the chat: what it read, its files, and its memory unless others share
    it."""
    state = context.state
    metadata = context.message.metadata
    if context.from_stranger:
        return "Only people whom my operator has named can say that here."
    folder = state.folder_sources if context.from_admin else ()
    here = merge_sources(state.sources, state.file_sources, folder)
    # In the memory of all, one person must not vouch for text that then acts in the others' chats.
    kept = state.scope == SHARED_SCOPE and metadata.get(ADMIN) != "1"
    trusted = merge_sources(here, () if kept else state.memory_sources)
    left: list[str] = []
    if state.folder_sources and not folder:
        left.append(f"The folder `{state.folder}` stays marked by {join_sources(state.folder_sources)}.")
    if kept and state.memory_sources:
        others = join_sources(state.memory_sources)
        left.append(f"The memory of everybody stays marked by {others}; an admin or an operator can trust it.")
    if not trusted:
        return " ".join(
            ["Nothing here comes from strangers." if not left else "There is nothing to trust here.", *left]
        )
    lines = [f"I trust what I read here: {join_sources(trusted)}.", *left]
    if state.turn:
        lines.append("What my present turn has read marks this chat again when it ends.")
    also = (folder_scope(state.folder) if folder else "", "")
    return CommandAnswer(" ".join(lines), change="trust" if kept else "trust_all", earlier=also)
