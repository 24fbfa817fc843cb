"""Loader of the Lua scripts: one file a script, in a folder for each subject
(`lua/turns/acquire.lua`). A script is sent with the parts of `lib/core.lua` that it uses in front
of it, followed by the file of `lib/` that its second line names (`-- with fair`). This module uses
the standard library only, because the guardian loads scripts too."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

_STARTS: Final = ("LOADING", "BUSY", "MISCONF")  # a start, a long-running script, a full disk
_FAIL_OVERS: Final = ("CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "READONLY", "TRYAGAIN", "UNBLOCKED")
AWAY_REPLIES: Final = (*_STARTS, *_FAIL_OVERS)
"""Beginnings of error replies that mean "not now" or "not here"."""

WITH: Final = "-- with "
_BEGINS: Final = re.compile(r"^(?:--.*\n)*local ", re.MULTILINE)
_NAMES: Final = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
_COMMENT: Final = re.compile(r"--.*")
_WORD: Final = re.compile(r"\w+")
_FOLDER: Final = __file__.removesuffix("client/scripts.py") + "lua/"


class Script(NamedTuple):
    """A script's name and source."""

    name: str
    source: str


@cache
def load(name: str) -> Script:
    """Read `lua/<name>.lua`; the name includes its folder ("turns/acquire"). May raise OSError."""
    return from_folder(name, _FOLDER)


def from_folder(name: str, folder: str) -> Script:
    """Read a script, and the parts of `lib/` that it uses, from `folder`, which ends in `/`."""
    shebang, _, body = _read_source(name, folder).partition("\n")
    first = body.partition("\n")[0]
    if first.startswith(WITH):
        body = f"{_read_source('lib/' + first.removeprefix(WITH), folder)}\n{body}"
    return Script(name, f"{shebang}\n{_used_parts(_read_source('lib/core', folder), body)}\n{body}")


def script_names() -> list[str]:
    """List the names of all scripts, sorted; the parts in `lib/` are not scripts."""
    from pathlib import Path

    folder = Path(_FOLDER)
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("lib/"))


def _used_parts(lib: str, body: str) -> str:
    """Return the parts of `lib` that a script uses, in their order. Every run of a script creates
    all its functions, and creating all of `lib` takes longer than most scripts themselves. A part
    begins at a line that begins with `local `, or at the comment lines directly above it."""
    # Words of comments do not count: a comment that says "wake" would pull in the function.
    words, kept = _words(body), ""
    starts = [begin.start() for begin in _BEGINS.finditer(lib)]
    # Backwards, because a part can only use parts above it.
    for start, end in reversed(list(zip(starts, [*starts[1:], len(lib)], strict=True))):
        part = lib[start:end]
        named = _NAMES.search(part)
        if named is not None and words.intersection(_WORD.findall(named[1])):
            words |= _words(part)
            kept = part + kept
    return kept


def _words(source: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", source)))


@cache
def sha(script: Script) -> str:
    """Return the SHA-1 by which the server knows a script (EVALSHA)."""
    import hashlib  # brings OpenSSL with it, which the guardian does without

    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def _read_source(name: str, folder: str) -> str:
    with open(f"{folder}{name}.lua", encoding="utf-8") as file:
        return file.read()
