"""Finding text in files: plain words, as a pattern can be made to run for hours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext
from worker.documents.text import decode_content
from worker.tools.files.glob import folder_prefix, is_inside

SHOWN_CHARS: Final = 1000  # length of the extract that is shown of one entry, around the match
SEARCH_S: Final = 12.0  # time limit of a search; the answer says how many files are left
COUNTED: Final = 1000  # after this number of matches no further file is searched
_LOG: Final = "HISTORY.md"


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Words, and the files to search."""

    words: Annotated[
        str,
        Meta(
            max_length=200,
            description="Words, parts of words or dates that must all stand in one line (in "
            "HISTORY.md: in one entry), in any order and case, such as `2026-11 dentist`. A phrase "
            'goes in double quotes: `"blue car"`.',
        ),
    ]
    path: Annotated[
        str | None,
        Meta(description="The file or folder to look in, such as `HISTORY.md` or `notes`; leave out for all."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=100, description="How many places to show at most.")] = 20


class Grep:
    """Returns one match a line; of HISTORY.md whole entries, the newest first."""

    name = "grep"
    description = (
        "Find lines in your files, and entries of HISTORY.md (newest first), by words or dates. "
        "Use it to look up what happened earlier."
    )
    parameters = GrepArguments
    safety: Safety = "read_only"
    timeout_s = 20.0

    async def run(self, arguments: GrepArguments, context: ToolContext) -> str:
        terms = search_terms(arguments.words)
        if not terms:
            raise ToolFailed("there are no words to look for; give at least one, such as 'dentist' or '2026-11'")
        names, one = await _files_to_search(context, arguments.path)
        hits, searched, guessed = await _search_files(context, names, terms, must=one)
        notes = [f"{name!r} was read as {encoding}" for name, encoding in guessed.items()]
        if (more := len(hits) - arguments.limit) > 0:
            notes.append(f"{more} more; use more words to narrow it")
        if left := len(names) - searched:
            notes.append(f"{left} of {len(names)} files were not searched; name one, or a folder")
        note = f"[{'; '.join(notes)}]" if notes else ""
        if not hits:
            return (
                f"Nothing in {arguments.path or 'any file'} has {arguments.words!r}"
                f". Try fewer or other words, or a part of a date. {note}".rstrip()
            )
        return "\n\n".join([*hits[: arguments.limit], *filter(None, [note])])


async def _files_to_search(context: ToolContext, path: str | None) -> tuple[Sequence[str], bool]:
    """Return the files to search, and whether it is one that was named."""
    if path is None:
        return await context.files.names(), False
    folder = folder_prefix(path)
    inside = [name for name in await context.files.names() if is_inside(name, folder)]
    return (inside, False) if inside else ([path], True)


async def _search_files(
    context: ToolContext, names: Sequence[str], terms: Sequence[str], *, must: bool
) -> tuple[list[str], int, dict[str, str]]:
    """Return matches, the number of files searched until there were enough or the time was over, and
    the encodings of files with matches that had to be guessed. Holds one file at a time. With
    `must`, a file that cannot be read is an error."""
    hits: list[str] = []
    guessed: dict[str, str] = {}
    until = context.clock.monotonic() + SEARCH_S
    for searched, name in enumerate(names):
        if len(hits) >= COUNTED or context.clock.monotonic() > until:
            return hits, searched, guessed
        try:
            found = await decode_content(name, await context.files.content(name))
        except ToolFailed:
            if must:
                raise
            continue  # a picture, say: no text to look in
        # In a thread: a large file would hold up the event loop.
        matches = await asyncio.to_thread(_search, name, found.text, terms)
        if (matches or must) and not found.plain:
            guessed[name] = found.described
        hits += matches
    return hits, len(names), guessed


def search_terms(words: str) -> list[str]:
    """Split words and quoted phrases: `a "b c"` are the terms `a` and `b c`."""
    pieces = words.split('"')
    plain = [word for piece in pieces[::2] for word in piece.split()]
    phrases = [piece.strip() for piece in pieces[1::2]]
    return [term.casefold() for term in (*plain, *phrases) if term]


def _search(path: str, text: str, terms: Sequence[str]) -> list[str]:
    return list(islice(_hits_in(path, text, terms), COUNTED))


def _hits_in(path: str, text: str, terms: Sequence[str]) -> Iterator[str]:
    if path == _LOG:
        for entry in reversed(re.split(r"\n\n+", text)):
            if _has(entry, terms):
                yield f"{path}: {text_around(entry, terms[0])}"
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if _has(line, terms):
                yield f"{path}:{number}: {text_around(line.strip(), terms[0])}"


def _has(text: str, terms: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(term in folded for term in terms)


def text_around(text: str, term: str, chars: int = SHOWN_CHARS) -> str:
    """Return at most `chars` characters of a text, around the first place where `term` stands."""
    if len(text) <= chars:
        return text
    start = max(0, min(text.casefold().find(term) - chars * 3 // 10, len(text) - chars))
    end = start + chars
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
