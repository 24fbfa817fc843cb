"""Pages of `shoal top` for one row: the list to choose from, the details, the log."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from console.grid import WARNING, Cell, Column, fact, flow, grid, wrapped
from console.top.fleet_snapshot import Observation
from console.top.picker import Picker, Row, rows_of
from shared.ids import log_id
from shared.store.fleet.presence import Presence
from shared.terminal_text import clean_line, duration, size

_COLUMNS = (
    Column("", 9),
    Column("name", 9, least=12),
    Column("runs on", 8, least=8),
    Column("runs", 7, right=True),
    Column("waiting", 7, right=True),
)
_KEYS = {
    "list": "q quit   Esc back   ↑↓ choose   Enter details   l log",
    "detail": "q quit   Esc back   l log",
    "log": "q quit   Esc back",
}


def picker_body(look: Observation, picker: Picker, log: Sequence[str], width: int, height: int) -> list[Text]:
    """Render at most `height` lines."""
    chosen = picker.chosen
    if picker.view == "list" or chosen is None:
        return _list(look, chosen, width, height)
    title = Text(clean_line(f"{chosen.kind} {chosen.name}"), style="bold")
    title.truncate(width, overflow="ellipsis")
    if picker.view == "log":
        room = max(1, height - 2)
        lines = [line for text in log[-room:] for line in wrapped(text, "", width)]
        return [title, Text(), *lines[-room:]][:height]
    if chosen.kind == "turn":
        details = _turn(look, chosen.name, width)
    else:
        details = _process(look, chosen, width)
    return [title, Text(), *details][:height]


def picker_foot(picker: Picker, width: int) -> Text:
    """Render the question, else the keys and what became of the last action."""
    if picker.question is not None:
        asked = clean_line(f"Stop the turn of {picker.question.session}? y/n")
        foot = Text(asked, style=f"bold {WARNING}")
    else:
        can_stop = picker.chosen and picker.chosen.kind == "turn" and picker.view != "log"
        foot = Text(_KEYS[picker.view or "list"] + ("   x stop" if can_stop else ""), style="dim")
        if picker.notice:
            foot = Text.assemble((clean_line(picker.notice), WARNING), "   ", foot)
    foot.truncate(width, overflow="ellipsis")
    return foot


def _list(look: Observation, chosen: Row | None, width: int, height: int) -> list[Text]:
    rows = rows_of(look)
    if not rows:
        return wrapped("Nothing runs.", "dim", width)[:height]
    title, *lines = grid(_COLUMNS, [_cells(look, row) for row in rows], width)
    at = rows.index(chosen) if chosen in rows else None
    if at is not None:
        lines[at].pad_right(max(0, width - lines[at].cell_len))
        lines[at].stylize("reverse")
    room = max(1, height - 1)
    first = max(0, min((at or 0) - room // 2, len(lines) - room))
    return [title, *lines[first : first + room]][:height]


def _cells(look: Observation, row: Row) -> list[Cell]:
    if row.kind == "turn":
        one = next(one for one in look.turns if one.session == row.name)
        waiting = max(0, one.messages - 1)
        behind = f"{waiting:,}" if waiting else ""
        return [Cell("turn"), Cell(row.name), Cell(one.worker), Cell(""), Cell(behind)]
    process = _find(look, row)
    runs = f"{process.running} of {process.slots}" if process and process.slots else ""
    host = process.host if process else ""
    return [Cell(row.kind), Cell(row.name), Cell(host), Cell(runs), Cell("")]


def _process(look: Observation, row: Row, width: int) -> list[Text]:
    process = _find(look, row)
    if process is None or look.found is None:
        return wrapped("It has ended.", WARNING, width)
    up = duration((look.found.at_ms - process.started_at) / 1000)
    facts = {"host": process.host, "pid": str(process.pid), "release": process.version, "up": up}
    facts["state"] = "draining" if process.draining else "ready"
    if process.slots:
        facts["runs"] = f"{process.running} of {process.slots} turns"
    if process.stats is not None:
        facts["memory"] = size(process.stats.memory_bytes)
        facts["turns/s"] = f"{process.stats.ended_per_s:g}"
    facts |= {name: value for name, value in sorted(process.details.items()) if value}
    lines = _facts(facts, width)
    for one in look.turns:
        if process.kind == "worker" and one.worker == process.name:
            lines += flow("turn", [fact(one.session)], width)
    return lines


def _turn(look: Observation, session: str, width: int) -> list[Text]:
    turn = next((one for one in look.turns if one.session == session), None)
    facts = {"runs on": turn.worker if turn else "nothing runs now", "in logs": log_id(session)}
    row = look.session
    if row is not None and row.session == session:
        facts["messages"] = f"{row.messages:,}, {row.waiting:,} in the inbox"
        facts["entries"] = f"{row.entries:,}"
        facts["model"] = row.preset
        facts["active"] = "" if row.idle_s is None else f"{duration(row.idle_s)} ago"
    return _facts(facts, width)


def _facts(facts: dict[str, str], width: int) -> list[Text]:
    wide = max(map(len, facts)) + 2
    lines = []
    for name, text in facts.items():
        if text:
            label = (clean_line(name).ljust(wide), "dim")
            lines.append(Text.assemble(label, clean_line(text)))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _find(look: Observation, row: Row) -> Presence | None:
    processes = look.found.processes if look.found is not None else ()
    return next((one for one in processes if (one.kind, one.name) == row), None)
