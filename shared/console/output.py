"""What every command has in common: `--json`, and how an answer is printed."""

from __future__ import annotations

import json
from typing import Final

import click

as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
show_chats: Final = click.option("--show-chats", is_flag=True, help="Show chat ids instead of hashes of them.")


def print_json(value: object) -> None:
    """The only thing that a command with `--json` writes to standard output."""
    click.echo(json.dumps(value, indent=2))
