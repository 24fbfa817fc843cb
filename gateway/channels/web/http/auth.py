"""Authentication: secrets by principal, the origins that browsers may come from, and rates."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers

from shared.clock import Clock
from shared.errors import SettingsError
from shared.settings import Settings

OWNER: Final = "owner"
GENERATED_FILE: Final = "web.token"
KNOWN_PRINCIPALS: Final = 1000
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


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
                f"web.token is not set, and no generated {str(generated)!r} is there; set web.token, or start `make up`"
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

    def bearer(self, header: str | None) -> Login | None:
        """Return the login for the value of an `Authorization` header."""
        scheme, _, token = (header or "").partition(" ")
        return self.login(token.strip()) if scheme.lower() == "bearer" else None

    def is_current(self, login: Login) -> bool:
        """Return whether the secret of a login is still that of its principal."""
        self.refresh()
        return hmac.compare_digest(self._digests.get(login.principal, b""), login.digest)

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
        return self._changes


def origin_allowed(headers: Headers, allowed: Iterable[str]) -> bool:
    """Return whether a request with these headers comes from a program, which sends no `Origin`, or
    from a page of this host or of `allowed`."""
    sent, host = headers.getlist("origin"), headers.get("host", "")
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


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _read_secret(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return ""


class TokenBucket:
    """A rate limit of one process: `burst` at once, then `per_s` a second."""

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at = now

    def try_acquire(self, now: float) -> float:
        """Take a token at `now` (monotonic s). Return 0.0, or the seconds until the next token."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0


class PrincipalRates:
    """The rate limit of each principal at this process."""

    def __init__(self, *, burst: int, per_s: float, clock: Clock) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def try_acquire(self, principal: str) -> float:
        """Take a token. Return 0.0 for success, else the seconds until the next token."""
        now = self._clock.monotonic()
        if len(self._buckets) >= KNOWN_PRINCIPALS:
            self._buckets.clear()
        new = TokenBucket(self._burst, self._per_s, now)
        return self._buckets.setdefault(principal, new).try_acquire(now)
