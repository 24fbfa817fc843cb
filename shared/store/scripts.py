"""The Lua scripts: one file a script under `lua/`, each sent with `lib.lua` in front, and behind that with what its
second line names (`-- with fair`). Standard library only."""

from __future__ import annotations

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
    more = _read(first.removeprefix(WITH)) if first.startswith(WITH) else ""
    return Script(name, f"{shebang}\n{_read('lib')}\n{more}\n{body}")


@cache
def sha(script: Script) -> str:
    """The SHA-1 by which the server knows a script (EVALSHA)."""
    import hashlib  # brings OpenSSL with it, which the guardian does without

    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    with open(f"{_FOLDER}{name}.lua", encoding="utf-8") as file:
        return file.read()
