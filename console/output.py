"""Options, help and output that every command shares."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import click

from shared.terminal_text import clean, clean_line

F = TypeVar("F", bound=Callable[..., object])

as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
show_chats: Final = click.option("--show-chats", is_flag=True, help="Show chat ids instead of hashes of them.")
without_asking: Final = click.option("--yes", is_flag=True, help="Do not ask.")


def limit(default: int, most: int, *names: str) -> Callable[[F], F]:
    """Return the option `--limit`."""
    kind = click.IntRange(1, most)
    return click.option(*names, "--limit", type=kind, default=default, show_default=True, help="How many.")


def examples(*lines: str) -> str:
    """Return the end of a command's help: lines that one types, which click does not wrap."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def print_json(value: object) -> None:
    """Print a value as JSON; a command with `--json` writes nothing else to standard output."""
    click.echo(json.dumps(value, indent=2))


def print_facts(
    facts: Mapping[str, object], *, as_json: bool = False, labels: Mapping[str, str] = {}, texts: Sequence[str] = ()
) -> None:
    """Print facts as JSON, or a line for each that is not None, with its label or else its name.
    The values of `texts` keep their line ends."""
    if as_json:
        print_json(facts)
        return
    shown = [name for name, value in facts.items() if value is not None]
    titles = {name: labels.get(name, name.replace("_", " ")) for name in shown}
    width = max(map(len, titles.values()))
    for name, title in titles.items():
        value = str(facts[name])
        click.echo(f"{title:<{width}} {clean(value) if name in texts else clean_line(value)}")


def utc(at_ms: int) -> str:
    """Format a time in ms since 1970 as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))


def print_table(rows: Sequence[Mapping[str, object]], none: str) -> None:
    """Print rows of values by the titles of their columns, or else the sentence `none`. Columns are
    as wide as their widest cell; on a terminal long cells are cut."""
    if not rows:
        click.echo(none)
        return
    from console import grid  # rich takes its time; help and completion do without it

    grid.print_table(list(rows[0]), [list(row.values()) for row in rows])
