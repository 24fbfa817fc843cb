"""Text that may change, as text that only grows."""

from __future__ import annotations

from gateway.channels.web.api.answer import PARAGRAPH


class StreamBuffer:
    """Turns text that may change into text that only grows; each method returns the text to send.

    The agent goes on with its next step, or another worker begins a reply again. Text that was sent
    stays; new text continues it, or is sent as a paragraph of its own, without the paragraphs that
    it has in common with what was sent. White space is sent once something follows it."""

    def __init__(self) -> None:
        self._part = ""  # the part of the running reply that was sent
        self._sent: list[str] = []
        self._held = ""
        self._closed = False

    def update(self, text: str) -> str:
        """Set the running reply to `text`."""
        if self._part.startswith(text):
            return ""
        grown = text.startswith(self._part) and not self._closed
        known = len(self._part) if grown else _common_paragraphs(self._part, text)
        self._part = text
        self._closed = False
        return self._advance(text[known:], new_paragraph=not grown)

    def insert(self, text: str) -> str:
        """Insert a complete text, outside of the reply."""
        self._closed = True
        return self._advance(text, new_paragraph=True)

    def finish(self, text: str, whole: str) -> str:
        """End the reply as `text`; `whole` is all that the turn has said. White space at its end does
        not count."""
        sent = "".join(self._sent)
        if whole.startswith(sent):
            return whole[len(sent) :]
        part = self._part.rstrip()
        if text.strip() == part.strip():
            return ""
        if part and not self._closed and text.startswith(part):
            self._held = ""
            return self._advance(text[len(part) :], new_paragraph=False)
        return self._advance(text[_common_paragraphs(self._part, text) :], new_paragraph=True)

    def _advance(self, text: str, *, new_paragraph: bool) -> str:
        before = PARAGRAPH if new_paragraph else self._held
        held = f"{before if self._sent else ''}{text}"
        more = held.rstrip()
        self._held = held[len(more) :] if not new_paragraph or more else self._held
        if more:
            self._sent.append(more)
        return more


def _common_paragraphs(one: str, other: str) -> int:
    """Return the length of the whole paragraphs with which both texts begin."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    at = other.rfind(PARAGRAPH, 0, same)
    return at + len(PARAGRAPH) if at >= 0 else 0
