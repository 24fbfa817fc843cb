"""Page of `shoal top`: what fits into the terminal, service to people first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.text import Text

from console.grid import WARNING, WRONG, wrapped
from console.top.fleet_snapshot import Observation
from console.top.picker import OVERVIEW, Picker
from console.top.picker_page import picker_body, picker_foot
from console.top.problems import problems
from console.top.trend import render_trend
from console.top.view import SORTS, Block, blocks, render_problems, summary
from shared.terminal_text import duration

ENOUGH: Final = 7  # lines that a table gets before blocks without news are shown


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
        return self


def page(
    look: Observation,
    mode: ViewMode,
    width: int,
    height: int,
    picker: Picker = OVERVIEW,
    log: Sequence[str] = (),
) -> list[Text]:
    """Render at most `height` lines of at most `width` cells: head, problems, fleet or what the
    picker shows, keys."""
    # Problems take at most one fourth, to leave room for the numbers that explain them.
    head = [_head(look, mode, width), *_problem_lines(look, width, max(2, height // 4))]
    keys = _foot(mode, width) if picker.view is None else picker_foot(picker, width)
    foot = [keys] if height > len(head) + 3 else []
    body: list[Text] = []
    if picker.view is not None:
        body = picker_body(look, picker, log, width, height - len(head) - len(foot))
    elif look.found is not None:
        parts = blocks(look.found, width, mode.sort)
        if trend := render_trend(look.trend, width):
            parts.insert(1, Block(trend, rank=1, spaced=False))
        body = fitted(parts, height - len(head) - len(foot))
    if look.away is not None:
        for line in body:
            line.stylize("dim")
    gap = height - len(head) - len(body) - len(foot)
    return [*head, *body, *([Text()] * gap), *foot][:height]


def fitted(parts: Sequence[Block], height: int) -> list[Text]:
    """Fit blocks into `height` lines. Higher ranks win; tables are cut; empty lines between blocks
    only if there is room."""
    least = {at: block.least or len(block.lines) for at, block in enumerate(parts)}
    preferred = {at: max(size, min(len(parts[at].lines), ENOUGH)) for at, size in least.items()}
    left: list[int] = []
    for at in sorted(least, key=lambda at: -parts[at].rank):
        wanted = least if parts[at].rank else preferred
        if not left or sum(wanted[one] for one in (*left, at)) <= height:
            left.append(at)
    left.sort()
    gaps = sum(parts[at].spaced for at in left)
    if sum(preferred[at] for at in left) + gaps > height:
        gaps = 0
    sizes = {at: len(parts[at].lines) for at in left}
    while sum(sizes.values()) + gaps > height and (tables := [at for at in left if sizes[at] > least[at]]):
        sizes[max(tables, key=lambda at: sizes[at])] -= 1
    gaps = max(0, height - sum(sizes.values()))
    lines: list[Text] = []
    for at, size in sizes.items():
        block = parts[at]
        missing = len(parts[at].lines) - size
        if block.spaced and gaps:
            lines.append(Text())
            gaps -= 1
        lines += block.lines[: size - 1] if missing else block.lines
        if missing:
            lines.append(Text(f"… {missing + 1} more {block.what}", style="dim"))
    return lines[: max(0, height)]


def _head(look: Observation, mode: ViewMode, width: int) -> Text:
    if look.away is not None:
        state = Text("Redis is away", style=WRONG)
    else:
        state = summary(problems(look.found)) if look.found else Text("looking …", style="dim")
    left = Text.assemble(("shoal top  ", "bold"), state)
    at_s = look.found.at_ms / 1000 if look.found else time.time()
    right = Text(time.strftime("%H:%M:%S", time.localtime(at_s)))
    if mode.paused:
        right = Text.assemble(("paused ", f"bold {WARNING}"), right)
    if left.cell_len + 2 + right.cell_len > width:
        left.truncate(width)
        return left
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def _problem_lines(look: Observation, width: int, most: int) -> list[Text]:
    if look.away is None:
        lines = render_problems(problems(look.found), width) if look.found else []
        if len(lines) > most:
            lines[most - 1 :] = [Text("… `shoal status` shows all", style=WRONG)]
            lines[-1].truncate(width, overflow="ellipsis")
        return lines
    since = time.strftime("%H:%M:%S", time.localtime(look.away.since))
    lasts = duration(time.time() - look.away.since)
    below = "; what is below was seen before that" if look.found else ""
    text = f"! away since {since} ({lasts}), tried again and again{below}: {look.away.why}"
    return wrapped(text, WRONG, width)


def _foot(mode: ViewMode, width: int) -> Text:
    keys = ["q quit", "p go on" if mode.paused else "p pause", f"s sort: {mode.sort}", "↑↓ choose"]
    words = keys if mode.keyed else ["Ctrl-C quits"]
    foot = Text("   ".join([*words, f"every {mode.every_s:g} s"]), style="dim")
    foot.truncate(width)
    return foot
