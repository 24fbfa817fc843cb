"""The Lua scripts: one file a script under `lua/`, each sent with what it uses of `lib.lua` in front, and behind that
with what its second line names (`-- with fair`). Standard library only."""

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
"""Beginnings of error answers that say "not now" or "not here": a start, a fail-over, a full disk, a long script."""

WITH: Final = "-- with "
_BEGINS: Final = re.compile(r"^(?=local )", re.MULTILINE)
_NAMES: Final = re.compile(r"local (?:function )?([\w, ]+)")
_WORD: Final = re.compile(r"\w+")
_FOLDER: Final = __file__.removesuffix("scripts.py") + "lua/"


class Script(NamedTuple):
    """A script's name and source."""

    name: str
    source: str


@cache
def load(name: str) -> Script:
    """Read `lua/<name>.lua`. Raises FileNotFoundError for a name that is none."""
    shebang, _, body = _read(name).partition("\n")
    first = body.partition("\n")[0]
    if first.startswith(WITH):
        body = f"{_read(first.removeprefix(WITH))}\n{body}"
    return Script(name, f"{shebang}\n{_needed(_read('lib'), body)}\n{body}")


def _needed(lib: str, body: str) -> str:
    """The parts of `lib` that a script uses. Each run of a script makes all its functions anew: those of the whole of
    it took longer than what most scripts do."""
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


def _read(name: str) -> str:
    with open(f"{_FOLDER}{name}.lua", encoding="utf-8") as file:
        return file.read()
