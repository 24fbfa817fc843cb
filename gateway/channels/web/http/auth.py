"""Who may come in: secrets by principal, and the Origins a browser may come from."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from shared.errors import SettingsError
from shared.settings import Settings

OWNER: Final = "owner"
GENERATED_FILE: Final = "web.token"
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_FileStamp = tuple[int, int, int]


class Login(msgspec.Struct, frozen=True):
    """Somebody who showed a valid secret: the principal, and a digest of that secret."""

    principal: str
    digest: bytes


class Principals:
    """Every principal's secret. Secrets that stand in files are read again whenever their file
    changes.

    A file that is missing or empty opens to nobody. All comparisons take the same time, whatever
    they find.
    """

    def __init__(self, secrets: Mapping[str, str], files: Mapping[str, Path] | None = None) -> None:
        self._files = dict(files or {})
        self._digests = {name: _digest(secret) for name, secret in secrets.items() if secret}
        self._stamps: dict[str, _FileStamp | None] = {}
        self._changes = 0
        self.refresh()

    @classmethod
    def of(cls, settings: Settings) -> Principals:
        """`web.token` and `web.tokens`; with neither, the generated `<data.dir>/web.token`.

        Raises SettingsError when there is none of them: a gateway without a secret would be open to
        all.
        """
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
        """Who shows this secret; None for nobody we know."""
        self.refresh()
        shown = _digest(token)
        found = None
        for principal, digest in self._digests.items():
            if hmac.compare_digest(digest, shown):
                found = principal
        return None if found is None else Login(found, shown)

    def bearer(self, header: str | None) -> Login | None:
        """The same for the value of an `Authorization` header."""
        scheme, _, token = (header or "").partition(" ")
        return self.login(token.strip()) if scheme.lower() == "bearer" else None

    def is_current(self, login: Login) -> bool:
        """Whether the secret that was shown is still that principal's."""
        self.refresh()
        return hmac.compare_digest(self._digests.get(login.principal, b""), login.digest)

    def refresh(self) -> int:
        """Read the files that changed. A number that grows whenever one did."""
        for principal, file in self._files.items():
            stamp = _file_stamp(file)
            if principal not in self._stamps or stamp != self._stamps[principal]:
                self._stamps[principal] = stamp
                self._changes += 1
                self._digests.pop(principal, None)
                secret = _read_secret(file)
                if secret:
                    self._digests[principal] = _digest(secret)
        return self._changes


def origin_allowed(origins: Iterable[str], host: str, allowed: Iterable[str]) -> bool:
    """Whether a request with these `Origin` headers may open a socket at `host`, the value of its
    `Host` header.

    A program sends no Origin and may; a browser always sends one, and it must name this host or one
    in `allowed`.
    """
    sent = list(origins)
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


def _file_stamp(file: Path) -> _FileStamp | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read_secret(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return ""
