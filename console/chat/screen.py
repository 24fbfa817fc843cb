"""Shows a chat where no person watches: plain text in a pipe, or the final reply alone.

Text of a model, or of a person elsewhere, is never shown with control codes in it.
"""

from __future__ import annotations

import json

import click

from shared.messages.web import ReplyFrame
from shared.terminal_text import clean, clean_line, size


class Screen:
    """The place where a chat is shown. This one shows only replies and remarks of this program."""

    def user_message(self, text: str) -> None:
        """Show a message of the person's that was not typed here just now."""

    def running(self, text: str) -> None:
        """Show all text so far of the answer that is due; the whole reply replaces it."""

    def progress(self, text: str) -> None:
        """Show what the agent is doing."""

    def reply(self, reply: ReplyFrame) -> None:
        click.echo(clean(shown_text(reply)))

    def note(self, text: str) -> None:
        click.echo(f"({clean_line(text)})", err=True)

    def rest(self) -> None:
        """Stop updating; the person types next."""

    def keep(self) -> None:
        """Leave the running text where it stands, and stop updating: other text follows below."""
        self.rest()


class PlainScreen(Screen):
    """A pipe: the answer as it grows, word for word; everything else goes to stderr."""

    def __init__(self) -> None:
        self._written = ""

    def user_message(self, text: str) -> None:
        click.echo(f"> {clean(text)}")

    def running(self, text: str) -> None:
        self._grow(clean(text))

    def progress(self, text: str) -> None:
        click.echo(f"· {clean_line(text)}", err=True)

    def reply(self, reply: ReplyFrame) -> None:
        text = clean(shown_text(reply))
        if not self._grow(text):
            # Another attempt used other words, and a pipe takes nothing back.
            click.echo(f"\n\n{text}", nl=False)
        self.rest()

    def rest(self) -> None:
        if self._written:
            click.echo()
        self._written = ""

    def _grow(self, text: str) -> bool:
        """Write the new part of a text; False when it does not continue what was written."""
        if not text.startswith(self._written):
            return False
        click.echo(text[len(self._written) :], nl=False)
        self._written = text
        return True


class JsonScreen(Screen):
    """For programs: the reply as a JSON object."""

    def reply(self, reply: ReplyFrame) -> None:
        shown = {name: getattr(reply, name) for name in ("chat", "seq", "turn", "kind", "text")}
        if reply.media:
            shown["media"] = [file.name for file in reply.media]
        if reply.buttons:
            shown["buttons"] = reply.buttons
        if reply.sources:
            shown["sources"] = reply.sources
        click.echo(json.dumps(shown, indent=2))


def shown_text(reply: ReplyFrame) -> str:
    """Return the text of a reply, a line for each file, its suggested answers by number, and the
    strangers whose text its turn had read."""
    files = [f"[file: {file.name}, {size(file.size)}; the chat page has it]" for file in reply.media]
    buttons = [f"{number}. {label}" for number, label in enumerate(reply.buttons, 1)]
    read = ", ".join(map(clean_line, reply.sources))
    sources = f"(after reading {read})" if read else ""
    parts = (reply.text, "\n".join(files), "\n".join(buttons), sources)
    return "\n\n".join(part for part in parts if part)


def is_silent(reply: ReplyFrame) -> bool:
    """Return whether a reply only ends its turn, for the agent has sent everything by its tool, or
    only rates an earlier one."""
    return reply.rates > 0 or (reply.kind == "reply" and not reply.text and not reply.media)
