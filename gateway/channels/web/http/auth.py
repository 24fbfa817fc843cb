"""Authentication: secrets by principal, and the origins that browsers may come from."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from gateway.channels.web.http.rates import LoginBrake
from shared.errors import SettingsError
from shared.log import logger
from shared.settings import Settings
from shared.settings.sections.gateways import TOKEN_CHARS

OWNER: Final = "owner"
GENERATED_FILE: Final = "web.token"
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}

log = logger("web")


class Login(msgspec.Struct, frozen=True):
    """A principal with the digest of the secret that it showed."""

    principal: str
    digest: bytes


class Principals:
    """The secret of every principal. Files are read again when they change; a missing or empty one
    lets no client in. A comparison takes the same time whatever its result."""

    def __init__(self, secrets: Mapping[str, str], files: Mapping[str, Path] | None = None) -> None:
        self._files = dict(files or {})
        self._digests = {name: _digest(secret) for name, secret in secrets.items() if secret}
        self._short = [name for name, secret in secrets.items() if len(secret) < TOKEN_CHARS]
        self.brake = LoginBrake()
        self._stamps: dict[str, tuple[int, int, int] | None] = {}
        self._changes = 0
        self.refresh()

    @classmethod
    def of(cls, settings: Settings) -> Principals:
        """`web.token` and `web.tokens`, else the generated `<data.dir>/web.token`. Raises
        SettingsError without any: such a gateway would be open to everyone."""
        web = settings.web
        given = dict(web.tokens) if web.token is None else {OWNER: web.token, **web.tokens}
        if given:
            files = {name: secret.file for name, secret in given.items() if secret.file is not None}
            fixed = {name: secret.reveal() for name, secret in given.items() if secret.file is None}
            return cls(fixed, files)
        generated = settings.data.dir / GENERATED_FILE
        if not generated.is_file():
            raise SettingsError(
                f"web.token is not set, and no generated {str(generated)!r} is there; "
                "set web.token, or start `shoal up`"
            )
        return cls({}, {OWNER: generated})

    def login(self, token: str) -> Login | None:
        """Return the login of the principal with this secret; None for an unknown secret."""
        self.refresh()
        shown = _digest(token)
        found = None
        # Without a break: the time must not tell which principal matched.
        for principal, digest in self._digests.items():
            if hmac.compare_digest(digest, shown):
                found = principal
        return None if found is None else Login(found, shown)

    def admit(self, token: str, host: str) -> Login | None:
        """Return the login of a client at this address. Raises Refused when too many wrong tokens
        came from there."""
        login = self.login(token)
        self.brake.check(token, host, right=login is not None)
        return login

    def bearer(self, request: HTTPConnection) -> Login | None:
        """Return the login of the `Authorization` header; the connection is then a known person's.
        Raises Refused."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        login = self.admit(token.strip(), host_of(request))
        if login is not None and (place := request.scope.get("state", {}).get("place")) is not None:
            place.become_known()
        return login

    def is_current(self, login: Login) -> bool:
        """Return whether the secret of a login is still that of its principal."""
        self.refresh()
        return hmac.compare_digest(self._digests.get(login.principal, b""), login.digest)

    def report(self) -> None:
        """Log, once each, whose secret is so short that it can be guessed, and refused logins."""
        for principal in self._short:
            advice = "it can be guessed, and the next release will refuse it: `openssl rand -hex 16` makes another"
            log.warning("token too short", principal=principal, needed=TOKEN_CHARS, advice=advice)
        self._short.clear()
        self.brake.report()

    def refresh(self) -> int:
        """Read the files that changed, and return a number that grows with each change."""
        for principal, file in self._files.items():
            try:
                stat = file.stat()
                stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            except OSError:
                stamp = None
            if principal not in self._stamps or stamp != self._stamps[principal]:
                self._stamps[principal] = stamp
                self._changes += 1
                self._digests.pop(principal, None)
                if secret := _read_secret(file):
                    self._digests[principal] = _digest(secret)
                    if len(secret) < TOKEN_CHARS:
                        self._short.append(principal)
        return self._changes


def origin_allowed(headers: Headers, allowed: Iterable[str]) -> bool:
    """Return whether a request with these headers comes from a program, which sends no `Origin`, or
    from a page of this host or of `allowed`."""
    sent = headers.getlist("origin")
    host = headers.get("host", "")
    if not sent:
        return True
    if len(sent) > 1:
        return False
    origin = sent[0].lower()
    if origin in {one.lower().rstrip("/") for one in allowed}:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default = _DEFAULT_PORTS.get(parts.scheme)
    if default is None or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        return False
    return parts.netloc.removesuffix(default) == host.lower().removesuffix(default)


def host_of(request: HTTPConnection) -> str:
    """Return the address that a request or a socket comes from."""
    return request.client.host if request.client else ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _read_secret(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return ""
