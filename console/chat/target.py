"""Finds the address of the gateway and the token for `shoal chat`."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

from console.chat.client import GatewayTarget
from shared.errors import SettingsError
from shared.settings import Settings

_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not listened on
_TOKEN_FILE: Final = "web.token"  # noqa: S105 - the name of a file
_OWNER: Final = "owner"


def find_target(settings: Settings, url: str | None, token: str | None) -> GatewayTarget:
    """Return the target: `url` and `token` if given, else those of the settings.

    A url may be the line that `make up` prints, with the token behind a `#`. Raises SettingsError.
    """
    address, inside = _parse_url(url) if url else (_settings_address(settings), None)
    return GatewayTarget(address, token or inside or _settings_token(settings))


def _parse_url(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise SettingsError(f"--url {url!r} is no address of a gateway; write it like ws://127.0.0.1:8080")
    path = parts.path if parts.path.strip("/") else "/ws"
    token = parse_qs(parts.fragment).get("token", [None])[0]
    return urlunsplit((scheme, parts.netloc, path, parts.query, "")), token


def _settings_address(settings: Settings) -> str:
    host, port = settings.web.host, settings.web.port
    if port == 0:
        raise SettingsError("web.port is 0, so nobody knows where the gateway listens; say it with --url")
    host = "127.0.0.1" if host in _ANYWHERE else host
    return f"ws://{f'[{host}]' if ':' in host else host}:{port}/ws"


def _settings_token(settings: Settings) -> str:
    web = settings.web
    own = web.token or web.tokens.get(_OWNER)
    if own is not None:
        return own.reveal()
    if web.tokens:
        raise SettingsError(f"web.tokens has no {_OWNER!r}; say who you are with --token")
    file = settings.data.dir / _TOKEN_FILE
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise SettingsError(
            f"no token: web.token is not set, and {str(file)!r} cannot be read ({exc.strerror}); "
            "start `make up` here, or give --token"
        ) from None
