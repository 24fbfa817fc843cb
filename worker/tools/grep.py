"""Finding text in files: plain words, no patterns. A pattern can be made to run for hours; words cannot."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import msgspec

from shared.errors import ToolFailed
from worker.agent.tool import Files, Safety, ToolContext

SHOWN_CHARS: Final = 1000
"""How much of one entry is shown, around what was found."""

_BEFORE_CHARS: Final = 300
_LOG: Final = "HISTORY.md"


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to find."""

    words: Annotated[
        str,
        msgspec.Meta(
            max_length=200,
            description="Words, parts of words or dates that must all stand in one line (in HISTORY.md: in one entry), "
            'in any order and case, such as `2026-11 dentist`. A phrase goes in double quotes: `"blue car"`.',
        ),
    ]
    path: Annotated[
        str | None, msgspec.Meta(description="The one file to look in, such as `HISTORY.md`; leave out for all.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many places to show at most.")] = 20


class Hit(msgspec.Struct, frozen=True):
    """One place: which file, which line (0 for an entry of HISTORY.md), and what stands there."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


class Grep:
    """Answers one place a line; of HISTORY.md whole entries, the newest first."""

    name = "grep"
    description = (
        "Find lines in your files, and entries of HISTORY.md (newest first), by words or dates. "
        "Use it to look up what happened earlier."
    )
    parameters = GrepArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: GrepArguments, context: ToolContext) -> str:
        terms = _terms(arguments.words)
        if not terms:
            raise ToolFailed("there are no words to look for; give at least one, such as 'dentist' or '2026-11'")
        files = await _texts(context.files, arguments.path)
        hits = await asyncio.to_thread(lambda: list(_search(files, terms)))
        if not hits:
            where = arguments.path or "any file"
            return f"Nothing in {where} has {arguments.words!r}. Try fewer or other words, or a part of a date."
        more = len(hits) - arguments.limit
        note = f"\n\n[{more} more; use more words to narrow it]" if more > 0 else ""
        return "\n\n".join(map(str, hits[: arguments.limit])) + note


async def _texts(files: Files, path: str | None) -> list[tuple[str, str]]:
    """Path and text of the file asked for, or of all that can be read."""
    if path is not None:
        return [(path, await files.read(path))]
    texts: list[tuple[str, str]] = []
    for name in await files.names():
        try:
            texts.append((name, await files.read(name)))
        except ToolFailed:
            continue  # a picture, say: no text to look in
    return texts


def _terms(words: str) -> list[str]:
    """`a "b c"` are the terms `a` and `b c`."""
    pieces = words.split('"')
    plain = [word for piece in pieces[::2] for word in piece.split()]
    return [term.casefold() for term in [*plain, *(piece.strip() for piece in pieces[1::2])] if term]


def _search(files: Iterable[tuple[str, str]], terms: Sequence[str]) -> Iterator[Hit]:
    for path, text in files:
        if path == _LOG:
            for entry in reversed(re.split(r"\n\n+", text)):
                if _has(entry, terms):
                    yield Hit(path, 0, _around(entry, terms[0]))
        else:
            for number, line in enumerate(text.split("\n"), 1):
                if _has(line, terms):
                    yield Hit(path, number, _around(line.strip(), terms[0]))


def _has(text: str, terms: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(term in folded for term in terms)


def _around(text: str, term: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    start = max(0, min(text.casefold().find(term) - _BEFORE_CHARS, len(text) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
