"""`shoal config`: are the settings fine, and what are they."""

from __future__ import annotations

import json
from typing import Any

import click

from shared.settings import load, shown


@click.group()
def config() -> None:
    """Check or show the settings that a process started here would get."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a line.")
def check(as_json: bool) -> None:
    """Say whether the settings are fine; else list every problem and exit with 2."""
    load()
    click.echo(json.dumps({"ok": True}) if as_json else "The settings are fine.")


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of TOML-like lines.")
def show(as_json: bool) -> None:
    """Show every setting with its value; secrets are masked."""
    sections = shown(load())
    if as_json:
        click.echo(json.dumps(sections, indent=2))
        return
    for name, table in sections.items():
        for key, value in _flat(name, table):
            click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in _flat(f"{name}.{key}", inner)]
    return [] if value is None else [(name, value)]
