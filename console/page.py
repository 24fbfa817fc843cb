"""`shoal open` and `shoal token`: the page that `shoal up` serves here, and what opens it."""

from __future__ import annotations

import html
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from console.output import as_json, examples, print_json
from shared.errors import ShoalError

if TYPE_CHECKING:
    from shared.settings import Settings

ADDRESS_FILE: Final = "web.address"  # in the data folder while `shoal up` runs
_LINK_FILE: Final = "open.html"
_ANSWERS_WITHIN_S: Final = 2.0


@click.command(epilog=examples("shoal open", "shoal open --no-browser"))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@as_json
def open(no_browser: bool, as_json: bool) -> None:
    """Open the page in a browser, signed in, and print its address."""
    import webbrowser

    from console.chat.command import settings_token
    from shared.settings.trust import load_trusted

    settings = load_trusted()
    link = f"{_find_page(settings)}#token={settings_token(settings)}"
    if not no_browser:
        webbrowser.open(_write_link(settings.data.dir.absolute() / _LINK_FILE, link).as_uri())
    _print("address", link, as_json=as_json)


@click.command(epilog=examples("shoal token", "shoal token --json"))
@as_json
def token(as_json: bool) -> None:
    """Print the owner's token, which opens the page and the API."""
    from console.chat.command import settings_token
    from shared.settings.trust import load_trusted

    _print("token", settings_token(load_trusted()), as_json=as_json)


def _print(name: str, value: str, *, as_json: bool) -> None:
    if as_json:
        print_json({name: value})
    else:
        click.echo(value)  # alone, for `$(shoal token)`


def _find_page(settings: Settings) -> str:
    """Return the first address at which something listens: that of the running `shoal up`, then
    that of the settings. Raises ShoalError."""
    from console.chat.command import settings_address

    candidates = []
    if (file := settings.data.dir / ADDRESS_FILE).exists():
        candidates.append(file.read_text(encoding="utf-8").strip())
    if settings.web.port:
        candidates.append(f"http://{urlsplit(settings_address(settings)).netloc}/")
    for address in candidates:
        parts = urlsplit(address)
        try:
            socket.create_connection((parts.hostname, parts.port or 80), _ANSWERS_WITHIN_S).close()
        except OSError:
            continue
        return address
    where = f" at {', '.join(candidates)}" if candidates else ""
    raise ShoalError(f"nothing answers{where}; start `shoal up` in this folder")


def _write_link(file: Path, link: str) -> Path:
    """Write a file of this user alone that leads to the page. A browser gets the name of the file:
    others on the machine can read its command line, in which the token would stand."""
    from shared.embedded import write_private

    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">\n')
    return file
