"""Addresses of Redis, `redis://`, `rediss://` (TLS) and `unix://`, as redis-py reads them."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_CHECKS: Final = ("none", "optional", "required")
VERIFY: Final = {name: ssl.VerifyMode[f"CERT_{name.upper()}"] for name in _CHECKS}


class Tls(NamedTuple):
    """Encryption of a connection: files of a further authority and of our own certificate, and
    how the server's certificate is checked (a key of VERIFY)."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: str = "required"

    def context(self) -> ssl.SSLContext:
        """Build the TLS context. Raises OSError for a file that cannot be read."""
        made = ssl.create_default_context()
        # Without a look at the host, anybody's certificate from the same authority would do.
        made.check_hostname = self.verify != "none"
        made.verify_mode = VERIFY[self.verify]
        if self.ca_file:
            made.load_verify_locations(self.ca_file)
        if self.cert_file:
            made.load_cert_chain(self.cert_file, self.key_file)
        return made


class Address(NamedTuple):
    """Address of a server, and our user there. With a `path` it is a socket on this machine."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    user: str = ""
    password: str = ""
    tls: Tls | None = None


def read_address(url: str) -> Address:
    """Parse an address. Raises ValueError."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme not in ("redis", "rediss", "unix"):
        schemes = "redis://, rediss:// or unix://"
        raise ValueError(f"an address of Redis begins with {schemes}, not with {parts.scheme!r}")
    address = Address(user=unquote(parts.username or ""), password=unquote(parts.password or ""))
    if parts.scheme == "unix":
        return address._replace(path=unquote(parts.path), db=int(options.get("db", 0)))
    tls = None
    if parts.scheme == "rediss":
        verify = options.get("ssl_cert_reqs", "required")
        if verify not in VERIFY:
            raise ValueError(f"ssl_cert_reqs is {verify!r}; it can be {', '.join(VERIFY)}")
        ca, cert, key = (options.get(f"ssl_{file}") for file in ("ca_certs", "certfile", "keyfile"))
        tls = Tls(ca, cert, key, verify)
    return address._replace(
        host=unquote(parts.hostname or "") or "localhost",
        port=parts.port or 6379,
        db=int(options.get("db") or unquote(parts.path).replace("/", "") or 0),
        tls=tls,
    )
