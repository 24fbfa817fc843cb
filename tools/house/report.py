"""The table of counts as text, as lists of what was counted, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tools.house.files import House
from tools.house.names import EXCUSED
from tools.house.table import SECTIONS, Row


def render_table(house: House) -> str:
    """Return an aligned table of the counts, with a note where a limit is not kept."""
    lines: list[str] = []
    for section, rows in SECTIONS.items():
        lines += ["", f"{section:<46}{'today':>10}{'wanted':>12}"]
        lines += [_line(row, house) for row in rows]
    lines += ["", "Excused identifiers", *_excused()]
    return "\n".join(lines[1:])


def render_lists(house: House) -> str:
    """Return what was counted in every row that lists it, a place a line."""
    lines: list[str] = []
    for rows in SECTIONS.values():
        for row in rows:
            if evidence := row.count(house).evidence:
                lines += ["", f"# {row.title} ({len(evidence)})", *evidence]
    return "\n".join(lines[1:])


def render_json(house: House) -> str:
    """Return the counts and limits as a JSON array of objects."""
    return json.dumps([_object(section, row, house) for section, rows in SECTIONS.items() for row in rows], indent=2)


def _line(row: Row, house: House) -> str:
    value = row.count(house).value
    note = "" if row.accepts(value) else "  not kept"
    return f"  {row.title:<44}{_number(value, row):>10}{_wanted(row):>12}{note}".rstrip()


def _wanted(row: Row) -> str:
    if row.limit is None:
        return ""
    return f"{'>=' if row.at_least else '<='} {_number(row.limit, row)}"


def _number(value: float, row: Row) -> str:
    return f"{value:.1f} %" if row.unit == "%" else f"{value:,.0f}"


def _excused() -> Iterator[str]:
    if not EXCUSED:
        yield "  none"
    for name, reason in sorted(EXCUSED.items()):
        yield f"  {name:<20} {reason}"


def _object(section: str, row: Row, house: House) -> dict[str, str | float | bool | None]:
    value = row.count(house).value
    return {
        "section": section,
        "title": row.title,
        "value": round(value, 2),
        "unit": row.unit,
        "limit": row.limit,
        "at_least": row.at_least,
        "reached": row.accepts(value),
    }
