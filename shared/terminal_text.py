"""Plain text for a terminal: tables, times, sizes, and foreign text without control codes."""

from __future__ import annotations

import re
from typing import Final

# ANSI escape sequences as ECMA-48 has them, whole where they are whole: what is left of a cut one
# would be shown.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS: Final = (*range(32), 127, *range(128, 160))
# Embeddings, overrides and isolates reach past their own end: the host behind a link, or the end of
# a command, would read differently.
_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_REMOVED: Final = {code: None for code in (*_CONTROLS, *_DIRECTIONS) if code not in (9, 10)}


def clean(text: str) -> str:
    """Remove escape sequences, control characters and changes of writing direction from foreign
    text; line ends and tabs stay. A model or a stranger must not move the cursor, rename the
    window, write to the reader's clipboard or show a text backwards."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n")).translate(_REMOVED)


def clean_line(text: str) -> str:
    """Clean a text and put it on one line."""
    return " ".join(clean(text).split())


def shorten(text: str, chars: int) -> str:
    """Clean a text, put it on one line, and cut it to `chars` characters."""
    line = clean_line(text)
    return line if len(line) <= chars else f"{line[: chars - 1].rstrip()}…"


def duration(seconds: float) -> str:
    """Format seconds: `12 s`, `3 min`, `4 h 5 min`, `2 d 3 h`."""
    whole = max(0, int(seconds))
    minutes = whole // 60
    hours = whole // 3600
    days = whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{whole} s"


def brief(seconds: float) -> str:
    """Format precise seconds: `0.4 ms`, `820 ms`, `4.1 s`, `95 s`, `3 min 20 s`, then as
    `duration`."""
    if seconds < 0.001:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole < 600 else duration(seconds)


def size(count: int) -> str:
    """Format bytes: `512 B`, `3.4 KB`, `1.2 MB`."""
    if count < 1024:
        return f"{count} B"
    for power, unit in ((1, "KB"), (2, "MB")):
        if count < 1024 ** (power + 1):
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count / 1024**3:.1f} GB"


def counted(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 letter`, `2 letters`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
