"""`shoal doctor`: is everything as it must be, and what to do where it is not."""

from __future__ import annotations

import sys
from typing import Final

import click

from console.output import as_json, examples, print_json
from shared.terminal_text import clean_line

_COLOURS: Final = {"ok": "green", "failed": "red", "skipped": "yellow"}


@click.command(epilog=examples("shoal doctor", "shoal doctor --probe"))
@click.option("--probe", is_flag=True, help="Queue a test job too, and wait up to 5 s for its result.")
@as_json
def doctor(probe: bool, as_json: bool) -> None:
    """Check settings, data folder, Redis, gateways and workers; exit with 1 when a check fails."""
    import msgspec

    from console.doctor.checks import checks_of

    checks = checks_of(probe=probe)
    failed = any(check.outcome == "failed" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": msgspec.to_builtins(checks)})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = click.style(f"{check.outcome:<7}", fg=_COLOURS[check.outcome], bold=check.outcome == "failed")
            click.echo(f"{mark}  {check.name:<{width}}  {clean_line(check.found)}")
    if failed:
        sys.exit(1)
