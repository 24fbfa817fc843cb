"""What a chat looks like where no person watches: plain text in a pipe, or the last word alone.

Nothing that a model, or a person elsewhere, wrote is shown with control codes in it.
"""

from __future__ import annotations

import json
from typing import Protocol

import click

from console.chat.extras import shown_text
from shared.messages.web import ReplyFrame
from shared.terminal_text import clean, clean_line


class Screen(Protocol):
    """Where a chat is shown."""

    def user_message(self, text: str) -> None:
        """A message of the person's that was not typed here and now."""
        ...

    def waiting(self) -> None:
        """An answer is due."""
        ...

    def running(self, text: str) -> None:
        """All text so far of the running answer."""
        ...

    def progress(self, text: str) -> None:
        """What the agent is doing."""
        ...

    def reply(self, reply: ReplyFrame) -> None:
        """A whole reply; it replaces what was shown of it."""
        ...

    def note(self, text: str) -> None:
        """A word about the connection."""
        ...

    def rest(self) -> None:
        """Nothing moves any more; the terminal is the person's."""
        ...


class PlainScreen:
    """A pipe: the answer as it grows, word for word; everything else goes to stderr."""

    def __init__(self) -> None:
        self._written = ""

    def user_message(self, text: str) -> None:
        click.echo(f"> {clean(text)}")

    def waiting(self) -> None:
        pass

    def running(self, text: str) -> None:
        self._grow(clean(text))

    def progress(self, text: str) -> None:
        click.echo(f"· {clean_line(text)}", err=True)

    def reply(self, reply: ReplyFrame) -> None:
        text = clean(shown_text(reply))
        if not self._grow(text):  # another attempt said it in other words, and a pipe takes nothing back
            click.echo(f"\n\n{text}", nl=False)
        self.rest()

    def note(self, text: str) -> None:
        click.echo(f"({clean_line(text)})", err=True)

    def rest(self) -> None:
        if self._written:
            click.echo()
        self._written = ""

    def _grow(self, text: str) -> bool:
        """Write what is new; False when it does not go on from what was written."""
        if not text.startswith(self._written):
            return False
        click.echo(text[len(self._written) :], nl=False)
        self._written = text
        return True


class FinalReplyScreen:
    """For programs: the reply and nothing else, as text or as a JSON object."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def user_message(self, text: str) -> None:
        pass

    def waiting(self) -> None:
        pass

    def running(self, text: str) -> None:
        pass

    def progress(self, text: str) -> None:
        pass

    def reply(self, reply: ReplyFrame) -> None:
        if self._as_json:
            shown: dict[str, object] = {
                "chat": reply.chat,
                "seq": reply.seq,
                "turn": reply.turn,
                "kind": reply.kind,
                "text": reply.text,
            }
            if reply.media:
                shown["media"] = [file.name for file in reply.media]
            if reply.buttons:
                shown["buttons"] = reply.buttons
            click.echo(json.dumps(shown, indent=2))
        else:
            click.echo(clean(shown_text(reply)))

    def note(self, text: str) -> None:
        click.echo(f"({clean_line(text)})", err=True)

    def rest(self) -> None:
        pass
