"""The Lua scripts: one file a script under `lua/`, each sent with `lib.lua` in front. Standard library only."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "lua"


class Script(NamedTuple):
    """A script's source and the SHA-1 by which the server knows it (EVALSHA)."""

    name: str
    source: str
    sha: str


@cache
def load(name: str) -> Script:
    """Read `lua/<name>.lua`. Raises FileNotFoundError for a name that is none."""
    shebang, _, body = (_FOLDER / f"{name}.lua").read_text().partition("\n")
    source = f"{shebang}\n{(_FOLDER / 'lib.lua').read_text()}\n{body}"
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
