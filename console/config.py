"""`shoal config`: are the settings fine, and what are they."""

from __future__ import annotations

import json
from typing import Any

import click

from console.examples import examples
from console.output import as_json, print_json


@click.group()
def config() -> None:
    """Check or show the settings that a process started here would get."""


@config.command(epilog=examples("shoal config check", "SHOAL_CONFIG=other.toml shoal config check"))
@as_json
def check(as_json: bool) -> None:
    """Say whether the settings are fine, those of channels included; else list every problem and
    exit with 2."""
    from console.doctor.channel_settings import check_channels
    from shared.settings import load

    check_channels(load())
    if as_json:
        print_json({"ok": True})
    else:
        click.echo("The settings are fine.")


@config.command(epilog=examples("shoal config show", "shoal config show --json | jq .worker"))
@as_json
def show(as_json: bool) -> None:
    """Show every setting with its value; secrets are masked."""
    from shared.settings import load, shown

    sections = shown(load())
    if as_json:
        print_json(sections)
        return
    for name, table in sections.items():
        for key, value in _flat(name, table):
            click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in _flat(f"{name}.{key}", inner)]
    return [] if value is None else [(name, value)]
