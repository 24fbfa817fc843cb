"""Leaves in a markup of marks around words, such as `*bold*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from gateway.text.layout import RULE
from gateway.text.leaves import Leaf, Link, Run, Style, bold, text_of

JOINT: Final = "\u200b"
"""A space without width. It separates a mark from a neighbour that would undo it, or a character
from one that would make it a mark."""

_WOULD_MARK: Final = re.compile(r"(?<![\w*~])[*_~]+(?=[^\s*_~])|`")
_FENCE: Final = re.compile(r"^`|`(?=``|$)")


def break_marks(text: str) -> str:
    """Put a joint after each mark that would begin something, where marks cannot be escaped."""
    return _WOULD_MARK.sub(rf"\g<0>{JOINT}", text)


def fenceless(code: str) -> str:
    """Break every fence in a code, so that the fence around it ends after it."""
    return _FENCE.sub(f"{JOINT}`{JOINT}", code)


def fenced(code: str, language: str = "") -> str:
    """Return a block of code between fences."""
    return f"```{language}\n{fenceless(code)}\n```"


class Pen(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's markup for runs. `text` escapes, `code` writes fixed-width text, `block` a block
    of it, and `link` gets a label, plain text of one line, and returns the text to write and the
    unstyled text after it. Headings up to level `headings` follow `#`, others are bold."""

    marks: Mapping[Style, str]
    text: Callable[[str], str]
    code: Callable[[str], str]
    block: Callable[[Leaf], str]
    link: Callable[[Link, str], tuple[str, str]]
    headings: int = 0

    def write_leaf(self, leaf: Leaf) -> str:
        """Return a leaf without the marks of its lists and quotes."""
        match leaf.kind:
            case "code":
                return self.block(leaf)
            case "rule":
                return RULE
            case "heading" if leaf.level <= self.headings and "\n" not in leaf.text:
                return f"{'#' * leaf.level} {self._write(leaf.runs)}"
            case "heading":
                return self._write(bold(leaf.runs))
            case _:
                return self._write(leaf.runs)

    def _write(self, runs: Sequence[Run]) -> str:
        """Return the runs in the markup. A mark never touches white space on its inner side and
        never spans a line end: platforms would show it as a character."""
        written: list[str] = []
        last = " "
        was_marked = False
        for text, marked in self._words(runs):
            if (marked and (was_marked or _joins(last)) and not last.isspace()) or (was_marked and _joins(text[0])):
                written.append(JOINT)
            written.append(text)
            last = text[-1]
            was_marked = marked
        return "".join(written)

    def _words(self, runs: Sequence[Run]) -> Iterator[tuple[str, bool]]:
        """Yield texts of one look, each with whether it has marks around it."""
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
        """Yield a link, in the styles that all of its label has."""
        styles = label[0].styles if all(run.styles == label[0].styles for run in label) else ()
        written, behind = self.link(link, " ".join(text_of(label).split()))
        yield self._marked(styles, written), bool(styles)
        if behind:
            yield behind, False

    def _marked(self, styles: Sequence[Style], text: str) -> str:
        marks = [self.marks[style] for style in styles]
        return "".join(marks) + text + "".join(reversed(marks))


def _joins(character: str) -> bool:
    """Return whether a mark next to this character may not count as one."""
    return character.isalnum() or character in "*_~`\\"
