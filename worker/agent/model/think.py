"""Thoughts in the text of a reply: `<think>...</think>` and its kin, which nobody is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = r"(?:[a-z]{1,12}:)?(?:think|thinking|thoughts?|reasoning|antthinking|scratchpad)"
_CHANNEL: Final = r"(?:<\|start\|>(?:assistant)?)?<\|?channel\|?>\s*"
_OPENING: Final = re.compile(
    rf"(?i)<{_NAME}(?:\s[^<>]{{0,200}})?(?P<empty>/?)>|◁think▷|\[THINK\]"
    rf"|<\|(?:START_THINKING|begin_of_thought|think)\|>|(?P<channel>{_CHANNEL}(?:analysis|thought)\b)"
)
_CLOSING: Final = re.compile(
    rf"(?i)(?<!`)(?:</{_NAME}\s*>|◁/think▷|\[/THINK\]|<\|(?:END_THINKING|end_of_thought|/think)\|>)"
)
_CHANNEL_END: Final = re.compile(r"(?i)<\|end\|>|<channel\|>|(?=<\|start\|>)|(?=<\|channel\|>\s*(?:final|commentary))")
_MARK: Final = re.compile(  # in front of an answer, where a model has one after its thoughts
    rf"(?i){_CHANNEL}(?:final|commentary)\b[^<]{{0,80}}<\|message\|>"
    r"|<\|(?:START_RESPONSE|begin_of_solution)\|>"
)
_END_MARK: Final = re.compile(r"(?i)<\|(?:end|return|END_RESPONSE|end_of_solution)\|>")

_LONGEST: Final = 240  # of a tag with attributes, and of the marks of a channel
_LONGEST_CLOSING: Final = 40
_MAY_OPEN: Final = re.compile(
    rf"(?is)<(?:/?[a-z]{{0,12}}:?[a-z]{{0,12}}\s*|{_NAME}(?:\s[^<>]*)?/?|\|?channel\|?[^<]*(?:<.*)?|\|.*)"
)
_MAY_CLOSE: Final = re.compile(r"(?i)<(?:/[a-z]{0,12}:?[a-z]{0,12}\s*|\|[a-z_/]{0,20}\|?)?")
_OTHER_TAGS: Final = ("◁think▷", "◁/think▷", "[think]", "[/think]")

_INDENTED: Final = 4  # blanks in front of a line of code
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_IN_FRONT_OF_A_QUOTED_TAG: Final = frozenset(" \t`'\"“‘«„([{<=")
# Between two tags that are spoken of
_PLACEHOLDER: Final = re.compile(r"\s?(?:and|or|…|\.\.\.|/|,)\s?")
_IN_A_SENTENCE: Final = re.compile(r" [a-z]")  # behind one


class ThinkFilter:
    """Passes on the visible part of a stream, wherever its deltas are cut.

    A block of thoughts begins the text, or follows another block; blocks do not nest, and one that
    is never closed hides the rest. A closing tag that nothing opened makes thoughts of all text
    before it: then `recalled` is set, and what was passed on must be taken back. Everywhere else
    tags are text: in code, in a sentence, and what the person wrote, `quoted`. White space in front
    is dropped.
    """

    def __init__(self, quoted: str = "", shown: str = "") -> None:
        self._quoted = quoted
        self._held = ""
        self._begun = bool(shown)
        self._inside: re.Pattern[str] | None = None  # the end of the block that is open
        self._opening = ""
        self._thoughts: list[str] = []
        self._channels = False
        self._closed = False  # there were thoughts, and they have ended
        self._certain = ""  # what is shown of the parts before such an end
        self._shown = [shown]
        self._new: list[str] = []
        self._first = True  # nothing was shown in an earlier part
        self.recalled = False

    @property
    def visible(self) -> str:
        """All that is shown."""
        return self._certain + "".join(self._shown)

    def next_part(self) -> None:
        """Go on with the text of another call, which may begin with thoughts, too."""
        self._first = not self.visible
        self._begun = False
        if self._closed:
            self._certain = self.visible
            self._closed = False
            self._shown.clear()

    def feed(self, delta: str) -> str:
        """Return the text that may be shown now. The start of a possible tag is held back."""
        if self._begun and not self._held and not ("<" in delta or "[" in delta or "◁" in delta):
            self._shown.append(delta)
            return delta  # the common case, handled without the search for tags below
        rest = self._held + delta
        self._held = ""
        while rest:
            if self._inside is not None:
                rest = self._think(rest, self._inside)
            elif self._begun:
                rest = self._speak(rest)
            else:
                rest = self._begin(rest)
        return self._take()

    def flush(self) -> str:
        """Return what was held back at the end: no tag came of it."""
        held = self._held
        self._held = ""
        if self._inside is None:
            self._show(held.lstrip() if self._first and not self._begun else held)
        elif self._is_spoken_of(block := self._block(held), _IN_A_SENTENCE.match(block, len(self._opening))):
            self._show(block)
        return self._take()

    def _begin(self, text: str) -> str:
        """Read the beginning of the text. Return what is left to read."""
        body = text.lstrip()
        if found := _OPENING.match(body):
            if not found["empty"]:
                self._inside = _CHANNEL_END if found["channel"] else _CLOSING
                self._opening = found[0]
                self._thoughts.clear()
            return body[found.end() :]
        if found := _MARK.match(body) or _CLOSING.match(body):
            self._channels = self._channels or found.re is _MARK
            return body[found.end() :]
        if not body or (len(body) < _LONGEST and _may_be(body, _MAY_OPEN)):
            self._held = text
            return ""
        self._begun = True
        return body if self._first else text

    def _think(self, text: str, closing: re.Pattern[str]) -> str:
        """Read thoughts. Return what is left to read behind them."""
        found = closing.search(text)
        if found is None:
            at = max(0, len(text) - _LONGEST_CLOSING)
            self._thoughts.append(text[:at])
            self._held = text[at:]
            return ""
        block = self._block(text[: found.end()])
        thoughts = block[len(self._opening) : len(block) - len(found[0])]
        self._inside = None
        self._closed = True
        if self._is_spoken_of(block, _PLACEHOLDER.fullmatch(thoughts)):
            self._show(block)
        return text[found.end() :]

    def _is_spoken_of(self, block: str, like_it: object) -> bool:
        """Return whether a block that begins the text is no thought, but speaks of one."""
        return like_it is not None or (len(block) > len(self._opening) and block in self._quoted)

    def _block(self, rest: str) -> str:
        return "".join([self._opening, *self._thoughts, rest])

    def _speak(self, text: str) -> str:
        """Read visible text. Return what is left to read behind a tag."""
        if self._channels:
            text = _END_MARK.sub("", text)
        found = _CLOSING.search(text)
        if found is None:
            at = _held_from(text)
            self._held = text[at:]
            self._show(text[:at])
            return ""
        before = "".join([*self._shown, text[: found.start()]])
        if _closes_what_is_before(before):
            self._shown.clear()
            self._new.clear()
            self._begun = False
            self._first = not self._certain
            self._closed = self.recalled = True
        else:
            self._show(text[: found.end()])
        return text[found.end() :]

    def _show(self, text: str) -> None:
        if text:
            self._begun = True
            self._shown.append(text)
            self._new.append(text)

    def _take(self) -> str:
        new = "".join(self._new)
        self._new.clear()
        return new


def strip_think(text: str) -> str:
    """Return the visible part of a whole text, without white space around it."""
    return visible_text([text]).strip()


def visible_text(parts: Iterable[str], quoted: str = "") -> str:
    """Return the visible part of a text that came in the parts of several calls."""
    think = ThinkFilter(quoted)
    for part in parts:
        think.next_part()
        think.feed(part)
    think.flush()
    return think.visible


def _closes_what_is_before(text: str) -> bool:
    """Return whether a closing tag behind a text ends thoughts that no tag has opened: not in code,
    not in a sentence, and not behind an opening tag that is text itself."""
    line = text.rpartition("\n")[2]
    if _OPENING.search(text) or len(_FENCE.findall(text)) % 2 or line.count("`") % 2:
        return False
    if not line.strip():
        return len(line) < _INDENTED
    return line[-1] not in _IN_FRONT_OF_A_QUOTED_TAG


def _held_from(text: str) -> int:
    """Return where a text may go on as a closing tag; its length if nowhere."""
    at = max(map(text.rfind, "<[◁"))
    return at if at >= 0 and _may_be(text[at:], _MAY_CLOSE) else len(text)


def _may_be(text: str, pattern: re.Pattern[str]) -> bool:
    low = text.lower()
    return bool(pattern.fullmatch(text)) or any(tag.startswith(low) for tag in _OTHER_TAGS)
