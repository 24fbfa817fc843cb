"""Runs in a markup of marks around words, such as `*bold*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.text.leaves import Link, Run, Style, text_of

JOINT: Final = "\u200b"
"""A space without width. It parts a mark from what would make it no mark, or the other way
round."""

_WOULD_MARK: Final = re.compile(r"(?<![\w*~])[*_~]+(?=[^\s*_~])|`")
_FENCE: Final = re.compile(r"^`|`(?=``|$)")


def taken_apart(text: str) -> str:
    """Text with a joint behind each mark that would begin something: for a markup that has no
    escape for marks."""
    return _WOULD_MARK.sub(rf"\g<0>{JOINT}", text)


def fenceless(code: str) -> str:
    """Code that holds no fence, so that a fence around it ends behind it."""
    return _FENCE.sub(f"{JOINT}`{JOINT}", code)


class Pen(msgspec.Struct, frozen=True, kw_only=True):
    """How a platform writes runs. `text` escapes, `code` writes fixed-width text, and `link` is
    given a label, plain text of one line, and says what is written for it, and what follows that
    unstyled."""

    marks: Mapping[Style, str]
    text: Callable[[str], str]
    code: Callable[[str], str]
    link: Callable[[Link, str], tuple[str, str]]

    def write(self, runs: Sequence[Run]) -> str:
        """The runs in the markup. No mark stands at white space or reaches over the end of a
        line."""
        written: list[str] = []
        last, was_marked = " ", False
        for text, marked in self._words(runs):
            if (marked and (was_marked or _joins(last)) and not last.isspace()) or (was_marked and _joins(text[0])):
                written.append(JOINT)
            written.append(text)
            last, was_marked = text[-1], marked
        return "".join(written)

    def _words(self, runs: Sequence[Run]) -> Iterator[tuple[str, bool]]:
        """Text of one look each, and whether it has marks around it."""
        for link, group in groupby(runs, lambda run: run.link):
            if link is not None:
                yield from self._link(link, list(group))
                continue
            for run in group:
                for line in run.text.splitlines(keepends=True):
                    yield from self._line(run, line)

    def _line(self, run: Run, line: str) -> Iterator[tuple[str, bool]]:
        core = line.strip()
        if not core or not (run.code or run.styles):
            yield self.text(line), False
            return
        start = line.index(core)
        if start:
            yield line[:start], False
        yield self.code(core) if run.code else self._marked(run.styles, self.text(core)), True
        if line[start + len(core) :]:
            yield line[start + len(core) :], False

    def _link(self, link: Link, label: Sequence[Run]) -> Iterator[tuple[str, bool]]:
        """A link, in those styles that all of its label has."""
        styles = label[0].styles if all(run.styles == label[0].styles for run in label) else ()
        written, behind = self.link(link, " ".join(text_of(label).split()))
        yield self._marked(styles, written), bool(styles)
        if behind:
            yield behind, False

    def _marked(self, styles: Sequence[Style], text: str) -> str:
        marks = [self.marks[style] for style in styles]
        return "".join(marks) + text + "".join(reversed(marks))


def _joins(character: str) -> bool:
    """Whether a mark beside this character may not count as one."""
    return character.isalnum() or character in "*_~`\\"
