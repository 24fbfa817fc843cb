"""`shoal config`: are the settings fine, and what are they."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from console.output import as_json, examples, print_json
from shared.errors import SettingsError

if TYPE_CHECKING:
    from shared.settings import Settings

WITHIN_S: Final = 60.0


@click.group()
def config() -> None:
    """Check, show or trust the settings that a process started here would get."""


@config.command(epilog=examples("shoal config check", "SHOAL_CONFIG=other.toml shoal config check"))
@as_json
def check(as_json: bool) -> None:
    """Check the settings, those of channels too; list every problem and exit with 2."""
    from shared.settings import load

    _check_channels(load())
    if as_json:
        print_json({"ok": True})
    else:
        click.echo("The settings are fine.")


@config.command(epilog=examples("shoal config trust"))
@as_json
def trust(as_json: bool) -> None:
    """Trust ./shoal.toml as it is now, so that other commands use it; `shoal up` does so itself."""
    from shared.settings.trust import trust_folder

    try:
        found = trust_folder()
    except (OSError, RuntimeError) as exc:
        raise SettingsError(f"what you trust cannot be kept ({exc}); name the file in SHOAL_CONFIG") from None
    if as_json:
        print_json({"trusted": found})
    else:
        nothing = "There is nothing to trust: no ./shoal.toml is used here."
        click.echo("./shoal.toml is trusted as it is now." if found else nothing)


@config.command(epilog=examples("shoal config show", "shoal config show --json | jq .worker"))
@as_json
def show(as_json: bool) -> None:
    """Show every setting with its value; secrets are masked."""
    from shared.settings import load, shown

    sections = shown(load())
    if as_json:
        print_json(sections)
        return
    for name, section in sections.items():
        for line in _lines(name, section):
            click.echo(line)


def _check_channels(settings: Settings) -> None:
    """Raise SettingsError, one line per problem, when an enabled channel could not start. Only a
    gateway can validate them, so a gateway process is asked. Connects to nothing."""
    from shared.settings import child_environment

    if not settings.channels:
        return
    command = [sys.executable, "-m", "gateway", "--check"]
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        result = subprocess.run(command, env=child_environment({}), timeout=WITHIN_S, check=False, **pipe)
    except subprocess.TimeoutExpired:
        raise SettingsError(f"`python -m gateway --check` did not end within {WITHIN_S:g} s; run it by hand") from None
    if result.returncode != 0 or result.stdout.strip() != "ok":
        raise SettingsError(result.stdout.strip() or f"`python -m gateway --check` ended with code {result.returncode}")


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(f"{name}.{key}", inner)
    elif value is not None:
        yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
