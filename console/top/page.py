"""Page of `shoal top`: what fits into the terminal, service to people first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.text import Text

from console.grid import WARNING, WRONG, wrapped
from console.top.fleet_snapshot import FleetSnapshot
from console.top.problems import Problem
from console.top.view import SORTS, Block, blocks, render_problems, summary
from shared.terminal_text import duration

PROBLEMS: Final = 4
"""Problems take at most one fourth of the page, to leave room for the numbers that explain them."""

ENOUGH: Final = 7


class Unavailable(msgspec.Struct, frozen=True):
    """Redis does not answer: since when (s since 1970), and why."""

    since: float
    why: str


class Observation(msgspec.Struct, frozen=True):
    """The last snapshot, its problems, and the outage if there is one."""

    found: FleetSnapshot | None = None
    wrong: tuple[Problem, ...] = ()
    away: Unavailable | None = None


class ViewMode(msgspec.Struct, frozen=True):
    """Choices made with keys."""

    every_s: float = 1.0
    sort: str = "name"
    paused: bool = False
    keyed: bool = True

    def after_key(self, key: str) -> ViewMode:
        """Return the mode after a key was pressed."""
        match key:
            case "p" | " ":
                return msgspec.structs.replace(self, paused=not self.paused)
            case "s":
                names = list(SORTS)
                return msgspec.structs.replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])
            case _:
                return self


def page(look: Observation, mode: ViewMode, width: int, height: int) -> list[Text]:
    """Render at most `height` lines of at most `width` cells: head, problems, fleet, keys."""
    head = [_head(look, mode, width), *_problem_lines(look, width, max(2, height // PROBLEMS))]
    foot = [_foot(mode, width)] if height > len(head) + 3 else []
    if look.found is None:
        body: list[Text] = []
    else:
        body = fitted(blocks(look.found, width, mode.sort), height - len(head) - len(foot))
    if look.away is not None:
        for line in body:
            line.stylize("dim")
    gap = height - len(head) - len(body) - len(foot)
    return [*head, *body, *([Text()] * gap), *foot][:height]


def fitted(parts: Sequence[Block], height: int) -> list[Text]:
    """Fit blocks into `height` lines. Higher ranks win; tables are cut; empty lines between blocks
    only if there is room."""
    left: list[Block] = []
    for block in sorted(parts, key=lambda block: -block.rank):
        wanted = _smallest_size if block.rank else _preferred_size
        if not left or sum(wanted(one) for one in (*left, block)) <= height:
            left.append(block)
    left.sort(key=list(parts).index)
    spaced = sum(_preferred_size(block) + block.spaced for block in left) <= height
    gaps = sum(block.spaced for block in left) if spaced else 0
    sizes = [len(block.lines) for block in left]
    while sum(sizes) + gaps > height and any(
        size > _smallest_size(block) for size, block in zip(sizes, left, strict=True)
    ):
        longest = max(range(len(left)), key=lambda at: sizes[at] if sizes[at] > _smallest_size(left[at]) else 0)
        sizes[longest] -= 1
    gaps = max(0, height - sum(sizes))
    lines: list[Text] = []
    for block, size in zip(left, sizes, strict=True):
        if block.spaced and gaps:
            lines.append(Text())
            gaps -= 1
        lines += _cut(block, size)
    return lines[: max(0, height)]


def _smallest_size(block: Block) -> int:
    return block.least or len(block.lines)


def _preferred_size(block: Block) -> int:
    """Return the lines that a table gets before blocks without news are shown."""
    return min(len(block.lines), ENOUGH) if block.least else len(block.lines)


def _cut(block: Block, size: int) -> list[Text]:
    left = len(block.lines) - size
    if not left:
        return block.lines
    return [*block.lines[: size - 1], Text(f"… {left + 1} more {block.what}", style="dim")]


def _head(look: Observation, mode: ViewMode, width: int) -> Text:
    left = Text.assemble(("shoal top  ", "bold"), _state(look))
    at_s = look.found.at_ms / 1000 if look.found else time.time()
    right = Text(time.strftime("%H:%M:%S", time.localtime(at_s)))
    if mode.paused:
        right = Text.assemble(("paused ", f"bold {WARNING}"), right)
    if left.cell_len + 2 + right.cell_len > width:
        left.truncate(width)
        return left
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def _state(look: Observation) -> Text:
    if look.away is not None:
        return Text("Redis is away", style=WRONG)
    return Text("looking …", style="dim") if look.found is None else summary(look.wrong)


def _problem_lines(look: Observation, width: int, most: int) -> list[Text]:
    if look.away is None:
        lines = render_problems(look.wrong, width)
        if len(lines) > most:
            lines = [*lines[: most - 1], *wrapped("… `shoal status` shows all", WRONG, max(width, 30))]
            lines[-1].truncate(width, overflow="ellipsis")
        return lines
    since = time.strftime("%H:%M:%S", time.localtime(look.away.since))
    lasts = duration(time.time() - look.away.since)
    below = "; what is below was seen before that" if look.found else ""
    text = f"! away since {since} ({lasts}), tried again and again{below}: {look.away.why}"
    return wrapped(text, WRONG, width)


def _foot(mode: ViewMode, width: int) -> Text:
    keys = ["q quit", "p go on" if mode.paused else "p pause", f"s sort: {mode.sort}"]
    words = keys if mode.keyed else ["Ctrl-C quits"]
    foot = Text("   ".join([*words, f"every {mode.every_s:g} s"]), style="dim")
    foot.truncate(width)
    return foot
