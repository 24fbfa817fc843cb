"""Rows of `shoal top` that arrows choose: processes and running turns. Keys, no drawing."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

import msgspec

from console.top.fleet_snapshot import Observation

View = Literal["list", "detail", "log"]

_KEY: Final = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|[\s\S]")
_NAMES: Final = {"A": "up", "B": "down"}


class Row(NamedTuple):
    """A worker or gateway by its name, or a running turn by its session."""

    kind: str
    name: str


class Question(NamedTuple):
    """A turn that is stopped if the answer is y."""

    session: str
    turn: int


class Picker(msgspec.Struct, frozen=True):
    """What was chosen with keys. Without `view` the overview of the fleet is shown. `notice` says
    what became of the last action."""

    view: View | None = None
    chosen: Row | None = None
    question: Question | None = None
    notice: str = ""

    def after_key(self, key: str, rows: list[Row]) -> Picker:
        """Return the state after a key that only moves; other keys change nothing."""
        replace = msgspec.structs.replace
        match key:
            case "up" | "down" if self.view in (None, "list"):
                if self.view is None or self.chosen not in rows:
                    return Picker("list", rows[0] if rows else None)
                at = rows.index(self.chosen) + (1 if key == "down" else -1)
                return Picker("list", rows[max(0, min(at, len(rows) - 1))])
            case "\n" | "\r" if self.view == "list" and self.chosen in rows:
                return replace(self, view="detail", notice="")
            case "l" if self.view in ("list", "detail") and self.chosen is not None:
                return replace(self, view="log", notice="")
            case "\x1b" | "\x7f" if self.view is not None:
                return Picker(None if self.view == "list" else "list", self.chosen)
        return self


OVERVIEW: Final = Picker()


def keys_of(typed: str) -> list[str]:
    """Split what a terminal sent into keys: `up`, `down`, or a character. Drops other sequences."""
    found = (match[0] for match in _KEY.finditer(typed))
    named = (_NAMES.get(key[-1], "") if len(key) > 1 else key for key in found)
    return [key for key in named if key]


def rows_of(look: Observation) -> list[Row]:
    """Return all rows: running turns by session, then workers and gateways by name."""
    turns = [Row("turn", one.session) for one in look.turns]
    processes = look.found.processes if look.found is not None else ()
    order = sorted(processes, key=lambda one: (one.kind != "worker", one.kind, one.name))
    return [*turns, *(Row(one.kind, one.name) for one in order)]
