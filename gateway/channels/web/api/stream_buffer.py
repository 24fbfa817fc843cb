"""What a stream has sent, and what is to be sent next: nothing that was sent can be taken back."""

from __future__ import annotations

from typing import Final

PARAGRAPH: Final = "\n\n"


class StreamBuffer:
    """Turns text that may change into text that only grows. Each method gives what is to be sent
    now.

    Shoal shows a running reply as it stands, and may take text back: when the worker that wrote it
    was lost and another one begins again, or when the agent goes on with the next step. As long as
    the new text says what was sent already, nothing is sent; what goes beyond it is sent; text that
    differs is sent whole, as a paragraph of its own.
    """

    def __init__(self) -> None:
        self._part = ""
        """What was sent of the reply that is running."""

        self._begun = False
        self._closed = False

    def update(self, text: str) -> str:
        """The running reply is `text` now."""
        if self._part.startswith(text):
            return ""
        grown = text.startswith(self._part) and not self._closed
        more = text[len(self._part) :] if grown else text
        self._part, self._closed = text, False
        return self._advance(more, new_paragraph=not grown)

    def insert(self, text: str) -> str:
        """Something whole was said in between."""
        self._closed = True
        return self._advance(text, new_paragraph=True)

    def finish(self, text: str) -> str:
        """The reply ends as `text`. White space at the end of what was sent does not matter."""
        sent = self._part.rstrip()
        if text.strip() == sent.strip():
            return ""
        if sent and not self._closed and text.startswith(sent):
            known = self._part if text.startswith(self._part) else sent
            rest = text[len(known) :]
            if known == self._part or rest[0].isspace():
                return self._advance(rest, new_paragraph=False)
        return self._advance(text, new_paragraph=True)

    def _advance(self, text: str, *, new_paragraph: bool) -> str:
        if not text:
            return ""
        begun, self._begun = self._begun, True
        return f"{PARAGRAPH}{text}" if new_paragraph and begun else text
