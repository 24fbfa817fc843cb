"""`/model`."""

from __future__ import annotations

from gateway.commands.command import CommandAnswer, CommandContext
from shared.settings import ModelSettings

DEFAULT = "default"


class ModelCommand:
    """Lists the models that an operator offers (`[model.presets]`), or chooses one for the chat."""

    name = "model"
    about = "list the models, or choose one: `/model NAME`"

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    async def answer(self, context: CommandContext) -> CommandAnswer:
        wanted = context.argument.strip("`'\" ")
        if not wanted:
            return CommandAnswer(self._list(context.state.preset))
        if wanted.casefold() == DEFAULT:
            text = f"From your next message on I use the usual model, `{self._settings.name}`."
            return CommandAnswer(text, change="preset")
        for name, preset in self._settings.presets.items():
            if name.casefold() == wanted.casefold():
                text = f"From your next message on I use `{name}` ({preset.name})."
                return CommandAnswer(text, change="preset", preset=name)
        return CommandAnswer(f"There is no such model here. These are: {self._names()}.")

    def _list(self, chosen: str) -> str:
        presets = self._settings.presets
        rows = [self._row(DEFAULT, self._settings.name, "the usual one", chosen not in presets)]
        rows += [self._row(name, preset.name, preset.about, chosen == name) for name, preset in presets.items()]
        lines = ["These models are there:", "", *rows, ""]
        if chosen and chosen not in presets:
            lines.append(f"`{chosen}`, which was chosen for this chat, is not offered any more.")
        lines.append("Choose with `/model NAME`." if presets else "An operator can offer more, in `[model.presets]`.")
        return "\n".join(lines)

    def _row(self, name: str, model: str, about: str, current: bool) -> str:
        mark = " **(in use)**" if current else ""
        return f"- `{name}`: {model}{', ' if about else ''}{about}{mark}"

    def _names(self) -> str:
        return ", ".join(f"`{name}`" for name in (DEFAULT, *self._settings.presets))
