"""`shoal logs`: what the processes of `shoal up` have written."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from console.output import as_json, examples, print_json
from shared.errors import ShoalError

if TYPE_CHECKING:
    from console.up.log_file import LogLine

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LOOK_S: Final = 0.3
_ELSEWHERE: Final = """there is no log of `shoal up` in {folder!r}. Elsewhere the log is where processes are run:
  systemd      journalctl -u 'shoal-*' -f
  Compose      docker compose logs -f worker gateway
  Kubernetes   kubectl logs -l app.kubernetes.io/name=shoal --all-containers --prefix -f"""


class Duration(click.ParamType[timedelta]):
    """A time such as 30s, 10m, 2h or 1d."""

    name = "TIME"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhd])", value.strip())
        if match is None:
            self.fail(f"{value!r} is not a time; write 30s, 10m, 2h or 1d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command(epilog=examples("shoal logs --follow", "shoal logs --process worker --level warning --since 2h"))
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--process", metavar="NAME", help="Only this process: gateway, worker, valkey or shoal.")
@click.option("--level", type=click.Choice(_LEVELS), default="debug", show_default=True, help="This level and above.")
@click.option("--since", type=Duration(), help="Only newer lines: 30s, 10m, 2h, 1d.")
@click.option("-n", "--limit", type=click.IntRange(1), default=1000, show_default=True, help="How many, the newest.")
@as_json
def logs(follow: bool, process: str | None, level: str, since: timedelta | None, limit: int, as_json: bool) -> None:
    """Show the log of `shoal up`, which keeps the newest 16 MB in its data folder.

    Processes that something else runs write to its log; the command for that is shown then.
    """
    from shared.settings.trust import load_trusted

    folder = load_trusted().data.dir.absolute()
    least = _LEVELS.index(level)
    begin = datetime.now(UTC) - since if since is not None else None

    def wanted(line: LogLine) -> bool:
        named = process is None or line.process == process
        return named and _LEVELS.index(line.level) >= least and (begin is None or line.at >= begin)

    _show(folder, wanted, follow=follow, limit=limit, as_json=as_json)


def _show(folder: Path, wanted: Callable[[LogLine], bool], *, follow: bool, limit: int, as_json: bool) -> None:
    from console.up.log_file import LogFileReader

    reader = LogFileReader(folder, wanted)
    try:
        lines = deque(reader.read_all(), maxlen=limit)
    except FileNotFoundError:
        raise ShoalError(_ELSEWHERE.format(folder=str(folder))) from None
    except OSError as exc:
        raise ShoalError(f"the log in {str(folder)!r} cannot be read: {exc.strerror}") from None
    if as_json and not follow:
        print_json({"lines": [_facts(line) for line in lines]})
        return
    while True:
        for line in lines:
            click.echo(json.dumps(_facts(line)) if as_json else f"{line.process:<7} | {line.text}")
        if not follow:
            return
        time.sleep(_LOOK_S)
        lines = deque(reader.read_new())


def _facts(line: LogLine) -> dict[str, str]:
    at = line.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"at": at, "process": line.process, "level": line.level, "text": line.text}
