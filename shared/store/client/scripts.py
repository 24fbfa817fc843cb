"""Loader of the Lua scripts: one file a script, in a folder for each subject
(`lua/turns/acquire.lua`).

A script is sent with the parts of `lib/core.lua` that it uses in front of it, followed by the file
of `lib/` that its second line names (`-- with fair`). Standard library only: the guardian loads
scripts too.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

AWAY_REPLIES: Final = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)
"""Beginnings of error answers that say "not now" or "not here": a start, a fail-over, a full disk,
a long script."""

WITH: Final = "-- with "
_BEGINS: Final = re.compile(r"^(?=local )", re.MULTILINE)
_NAMES: Final = re.compile(r"local (?:function )?([\w, ]+)")
_WORD: Final = re.compile(r"\w+")
_FOLDER: Final = __file__.removesuffix("client/scripts.py") + "lua/"


class Script(NamedTuple):
    """A script's name and source."""

    name: str
    source: str


@cache
def load(name: str) -> Script:
    """Read `lua/<name>.lua`; a name has its folder in it ("turns/acquire"). Raises FileNotFoundError."""
    return from_folder(name, _FOLDER)


def from_folder(name: str, folder: str) -> Script:
    """Read a script, and what it uses of `lib/`, from another folder than our own (it ends in `/`)."""
    shebang, _, body = _read_source(name, folder).partition("\n")
    first = body.partition("\n")[0]
    if first.startswith(WITH):
        body = f"{_read_source('lib/' + first.removeprefix(WITH), folder)}\n{body}"
    return Script(name, f"{shebang}\n{_used_parts(_read_source('lib/core', folder), body)}\n{body}")


def script_names() -> list[str]:
    """List every script by name, sorted; the parts in `lib/` are not scripts."""
    from pathlib import Path

    folder = Path(_FOLDER)
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("lib/"))


def _used_parts(lib: str, body: str) -> str:
    """The parts of `lib` that a script uses. Each run of a script makes all its functions anew:
    those of the whole of it took longer than what most scripts do."""
    words, kept = set(_WORD.findall(body)), ""
    for part in reversed(_BEGINS.split(lib)[1:]):
        named = _NAMES.match(part)
        if named is not None and words.intersection(_WORD.findall(named[1])):
            words.update(_WORD.findall(part))
            kept = part + kept
    return kept


@cache
def sha(script: Script) -> str:
    """The SHA-1 by which the server knows a script (EVALSHA)."""
    import hashlib  # brings OpenSSL with it, which the guardian does without

    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def _read_source(name: str, folder: str) -> str:
    with open(f"{folder}{name}.lua", encoding="utf-8") as file:
        return file.read()
