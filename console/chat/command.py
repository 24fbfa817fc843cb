"""`shoal chat`: talk to Shoal from a terminal, or ask it one thing from a script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import click

from console.chat.local_commands import CHAT_NAME
from console.output import as_json, examples
from shared.errors import SettingsError

if TYPE_CHECKING:
    from shared.settings import Settings

_HISTORY: Final = click.IntRange(0, 50)
_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not listened on


@click.command(
    epilog=examples(
        "shoal chat",
        'shoal chat -m "What time is it?"',
        "git diff | shoal chat -m 'Explain this' -",
        "git diff | shoal chat --json",
        "shoal chat --chat work",
    )
)
@click.argument("stdin", metavar="[-]", type=click.Choice(["-"]), required=False)
@click.option("-m", "--message", metavar="TEXT", help="Send this, print the answer, and end.")
@click.option("--chat", "name", default="terminal", show_default=True, help="Which conversation.")
@click.option("--url", help="Where the gateway is, e.g. ws://127.0.0.1:8080, or what `shoal open` prints.")
@click.option("--token", help="Who you are; by default web.token, or the one that `shoal up` made.")
@click.option("--history", type=_HISTORY, default=6, show_default=True, help="Old lines shown at start.")
@as_json
def chat(
    stdin: str | None,
    message: str | None,
    name: str,
    url: str | None,
    token: str | None,
    history: int,
    as_json: bool,
) -> None:
    """Talk to Shoal through its web gateway.

    Esc or Ctrl-C stops the running answer; at the empty prompt Ctrl-C leaves, as Ctrl-D and /quit
    do. Alt-Enter begins a line, Ctrl-X Ctrl-E opens $EDITOR, /attach FILE sends a file along,
    /sessions shows your chats, /help what else may be said with a slash.

    With -m, or with text on standard input, one message is sent and its answer printed. A
    dash after -m TEXT adds standard input below the text; without it -m leaves standard input alone.
    The exit code is 0 for an answer, 1 for an apology or an error, 130 after Ctrl-C.
    """
    if not CHAT_NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, dashes and underscores"
        raise click.BadParameter(rule, param_hint="--chat")
    # With -m a pipe is read only if a dash asks for it: a script may leave one open that never ends.
    if stdin or (message is None and not sys.stdin.isatty()):
        piped = sys.stdin.buffer.read().decode(errors="replace").rstrip("\r\n")
        message = "\n\n".join(filter(None, (message, piped)))
    if message is not None and not message.strip():
        raise click.UsageError("There is no text to send.")
    if message is None and as_json:
        raise click.UsageError("--json goes with one message: -m, or text on standard input.")

    from console.chat import conversation  # here: `shoal --help` does without all of it
    from shared.settings.trust import load_trusted

    url, token = find_target(load_trusted(), url, token)
    if message is None:
        conversation.converse(url, token, name, history=history)
    else:
        sys.exit(conversation.ask_once(url, token, name, message, as_json=as_json))


def find_target(settings: Settings, url: str | None, token: str | None) -> tuple[str, str]:
    """Return the address and the token of the gateway: those given, else those of the settings.

    A url may be the line that `shoal open` prints, with the token behind a `#`. Raises SettingsError.
    """
    address, inside = _parse_url(url) if url else (settings_address(settings), None)
    return address, token or inside or settings_token(settings)


def _parse_url(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise SettingsError(f"--url {url!r} is not the address of a gateway; write it like ws://127.0.0.1:8080")
    path = parts.path if parts.path.strip("/") else "/ws"
    token = parse_qs(parts.fragment).get("token", [None])[0]
    return urlunsplit((scheme, parts.netloc, path, parts.query, "")), token


def settings_address(settings: Settings) -> str:
    """Return the address of the page's socket on this machine. Raises SettingsError."""
    port = settings.web.port
    if port == 0:
        raise SettingsError("web.port is 0, so nobody knows where the gateway listens; say it with --url")
    host = "127.0.0.1" if settings.web.host in _ANYWHERE else settings.web.host
    return f"ws://{f'[{host}]' if ':' in host else host}:{port}/ws"


def settings_token(settings: Settings) -> str:
    """Return the owner's token: that of the settings, else the one that `shoal up` made. Raises
    SettingsError."""
    web = settings.web
    own = web.token or web.tokens.get("owner")
    if own is not None:
        return own.reveal()
    if web.tokens:
        raise SettingsError("web.tokens has no 'owner'; say who you are with --token")
    file = settings.data.dir / "web.token"
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise SettingsError(
            f"no token: web.token is not set, and {str(file)!r} cannot be read ({exc.strerror}); "
            "start `shoal up` here, or give --token"
        ) from None
