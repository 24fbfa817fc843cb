"""Sources of strangers' text: short labels, such as `evil.example` or `mail of x`, that mark
whatever that text has touched. A list of them is called a mark; an empty one means that there is
none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SOURCES_CAP: Final = 8
"""Labels of one mark. Further ones are dropped: a mark counts by being there, labels explain it."""

LABEL_CHARS: Final = 60

OF_PROGRAMS: Final = "messages of the API"
"""Label of a conversation that a program sent: it may have made it up."""

Sources = tuple[str, ...]


def source_label(text: str) -> str:
    """Return the text as a label: one visible line, shortened."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= LABEL_CHARS else f"{line[: LABEL_CHARS - 1]}…"


def merge_sources(*marks: Iterable[str]) -> Sources:
    """Return the labels of all marks, each once, the first ones of them."""
    return tuple(dict.fromkeys(label for mark in marks for label in mark))[:SOURCES_CAP]


def pack_sources(sources: Iterable[str]) -> str:
    """Return a mark as `add_sources` (lib/base.lua) and the fields of Redis have it: a label a
    line."""
    return "\n".join(map(source_label, sources))


def parse_sources(field: bytes | None) -> Sources:
    """Parse such a field."""
    return tuple(filter(None, (field or b"").decode(errors="replace").split("\n")))


def join_sources(sources: Iterable[str]) -> str:
    """Name the sources in a sentence: `evil.example, mail of x`."""
    return ", ".join(sources)
