"""Loader of the Lua scripts: one file a script, in a folder for each subject
(`lua/turns/acquire.lua`). Its first lines name its keys and arguments, and callers name them, too
(see `Script.words`). A script is sent with the parts of `lib/` that it uses in front of it. This
module uses the standard library only, because the guardian loads scripts too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from shared.store.keys import ARQ, NO_KEY, Whose, named_key

_STARTS: Final = ("LOADING", "BUSY", "MISCONF")  # a start, a long-running script, a full disk
_FAIL_OVERS: Final = ("CLUSTERDOWN", "MASTERDOWN", "ASK ", "NOREPLICAS", "READONLY", "TRYAGAIN", "UNBLOCKED")
AWAY_REPLIES: Final = (*_STARTS, *_FAIL_OVERS)
"""Beginnings of error replies that mean "not now" or "not here"."""

LIBRARY: Final = (
    *("base", "clock", "queue", "attempts", "dedupe", "lines", "history", "ledger"),
    *("schedules", "approvals", "subagents", "trail", "delivery", "fair", "command"),
)
"""The files of `lib/`, each after those that it uses."""

DURABLE: Final = "-- durable\n"
"""Line of a script after which somebody outside of the store learns that something happened, or
acts on it, and of every renewal of a lease: it counts when `redis.copies` servers have it. The
others lose work that is done again: a lease that went with its primary, a rate, text on a
screen."""

_BEGINS: Final = re.compile(r"^(?:--.*\n)*local ", re.MULTILINE)
_NAMES: Final = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
_COMMENT: Final = re.compile(r"--.*")
_WORD: Final = re.compile(r"\w+")
_FOLDER: Final = __file__.removesuffix("client/scripts.py") + "lua/"


_KEYS: Final = re.compile(r"^local ([\w,\s]+) =\s+unpack\(KEYS\)$", re.MULTILINE)
_ARGS: Final = re.compile(r"^local ([\w,\s]+) =\s+unpack\(ARGV\)$", re.MULTILINE)

Word = str | bytes | int | float


class Script(NamedTuple):
    """A script's name and source, and the names of its keys and arguments in their order;
    `durable`: see DURABLE."""

    name: str
    source: str
    durable: bool = False
    keys: tuple[str, ...] = ()
    args: tuple[str, ...] = ()

    def words(self, values: Mapping[str, Word], whose: Whose, on_cluster: tuple[str, ...] = ()) -> tuple[Word, ...]:
        """Return what EVAL takes behind the source: the number of keys, the keys, the arguments.

        `values` has them by name; "" is no key. Keys that are missing there are those of `whose`,
        or exist once (see `keys.named_key`). Arguments `name` and `channel` are the session and the
        channel of `whose`. Raises TypeError for a missing value, or one that the script does not
        name."""
        used = 0
        words: list[Word] = [len(self.keys) + len(on_cluster)]
        for one in self.keys:
            if one in values:
                words.append(values[one] or NO_KEY)
                used += 1
            else:
                words.append(named_key(one, whose))
        words += on_cluster
        for one in self.args:
            if one in values:
                words.append(values[one])
                used += 1
            elif one == "name" and whose.session is not None:
                words.append(whose.session)
            elif one == "channel" and whose.channel is not None:
                words.append(whose.channel)
            else:
                raise TypeError(f"the script {self.name} needs {one}")
        if used != len(values):
            unknown = values.keys() - {*self.keys, *self.args}
            raise TypeError(f"the script {self.name} knows no {', '.join(sorted(unknown))}")
        return tuple(words)


@cache
def load(name: str, *, arq: str = ARQ) -> Script:
    """Read `lua/<name>.lua`; the name includes its folder ("turns/acquire"). `arq` is what arq's
    keys begin with. May raise OSError."""
    script = from_folder(name, _FOLDER)
    return script._replace(source=script.source.replace(f"'{ARQ}", f"'{arq}"))


def from_folder(name: str, folder: str) -> Script:
    """Read a script, and the parts of `lib/` that it uses, from `folder`, which ends in `/`."""
    shebang, _, body = _read_source(name, folder).partition("\n")
    source = f"{shebang}\n{_used_parts(_library(folder), body)}\n{body}"
    return Script(name, source, DURABLE in body, _parameters(_KEYS, body), _parameters(_ARGS, body))


def script_names() -> list[str]:
    """List the names of all scripts, sorted; the parts in `lib/` are not scripts."""
    from pathlib import Path

    folder = Path(_FOLDER)
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("lib/"))


def _parameters(line: re.Pattern[str], body: str) -> tuple[str, ...]:
    found = line.search(body)
    return tuple(_WORD.findall(found[1])) if found else ()


def _used_parts(lib: str, body: str) -> str:
    """Return the parts of `lib` that a script uses, in their order. Every run of a script creates
    all its functions, and creating all of `lib` takes longer than most scripts themselves. A part
    begins at a line that begins with `local `, or at the comment lines directly above it."""
    # Words of comments do not count: a comment that says "wake" would pull in the function.
    words = _words(body)
    kept = ""
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


@cache
def _library(folder: str) -> str:
    return "".join(_read_source(f"lib/{part}", folder) for part in LIBRARY)


def _read_source(name: str, folder: str) -> str:
    with open(f"{folder}{name}.lua", encoding="utf-8") as file:
        return file.read()
