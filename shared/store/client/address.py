"""Addresses of Redis: `redis://`, `rediss://` (TLS) and `unix://`, as redis-py reads them; with
`+sentinel` those of Sentinels, with `+cluster` those of nodes of a cluster. Standard library only:
the guardian reads them too."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext

SENTINEL: Final = "+sentinel"
"""End of the scheme of an address whose hosts are Sentinels:
`redis+sentinel://host,host/service/0`."""

CLUSTER: Final = "+cluster"
"""End of the scheme of an address whose hosts are nodes of a cluster:
`redis+cluster://host,host`."""

NOT_PRIMARY: Final = ("READONLY", "MASTERDOWN", "UNBLOCKED", "MOVED ")
"""Beginnings of the error replies of a server that is a replica, or does not have our slot, perhaps
since a moment ago."""

_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    *(f"redis{tls}{kind}" for kind in (SENTINEL, CLUSTER) for tls in ("", "s")),
)
_CHECKS: Final = ("none", "optional", "required")


class Tls(NamedTuple):
    """Encryption of a connection: files of a further authority and of our own certificate, and
    how the server's certificate is checked (one of _CHECKS)."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: str = "required"

    def context(self) -> SSLContext:
        """Build the TLS context. Raises OSError for a file that cannot be read."""
        import ssl  # 5 MB that a guardian without TLS does not need

        made = ssl.create_default_context()
        # Without a look at the host, anybody's certificate from the same authority would do.
        made.check_hostname = self.verify != "none"
        made.verify_mode = ssl.VerifyMode[f"CERT_{self.verify.upper()}"]
        if self.ca_file:
            made.load_verify_locations(self.ca_file)
        if self.cert_file:
            made.load_cert_chain(self.cert_file, self.key_file)
        return made


class Address(NamedTuple):
    """Address of a server, and our user there. With a `path` it is a socket on this machine. With
    `sentinels` it is whichever server they call the primary of `service`, with `nodes` whichever
    primary of their cluster has our slot."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    user: str = ""
    password: str = ""
    tls: Tls | None = None
    password_file: str = ""
    url_file: str = ""
    sentinels: tuple[Address, ...] = ()
    service: str = ""
    nodes: tuple[Address, ...] = ()

    def with_login(self) -> Address:
        """Return this with the password of now: that in `password_file`, or user and password of
        the address in `url_file`. What cannot be read leaves them as they were."""
        with suppress(OSError, ValueError):
            if self.password_file:
                return self._replace(password=_read_secret(self.password_file))
            if self.url_file:
                found = read_address(_read_secret(self.url_file))
                return self._replace(user=found.user, password=found.password)
        return self


class WrongServer(ConnectionError):
    """The server at the other end of a connection cannot take our writes."""


REPLICA: Final = "this Redis is a replica, which takes no writes: redis.url must lead to the primary"
_IN_CLUSTER: Final = "this Redis is a node of a cluster: write redis.url as redis+cluster://host:6379,host:6379"


class Locator:
    """Where a connection leads: to its address."""

    hello: tuple[tuple[str, ...], ...] = ()
    """Commands that a new connection begins with; what the server answers does not matter."""

    leave_on: tuple[str, ...] = NOT_PRIMARY
    """Beginnings of the error replies that end a connection: its server is the wrong one."""

    def __init__(self, address: Address) -> None:
        self.address = address

    async def locate(self) -> Address:
        """Return the server to connect to, with the password of now. Raises OSError."""
        return self.address.with_login()

    def is_current(self, server: Address) -> bool:
        """Tell whether a connection to `server`, which `locate` returned, is still the right
        one."""
        return True

    def check(self, role: bytes | None, mode: bytes | None) -> None:
        """Raise WrongServer unless a server with this role and mode (None: it does not tell) is one
        to write to."""
        if role in (b"replica", b"slave"):
            raise WrongServer(REPLICA)
        if mode == b"cluster":
            raise WrongServer(_IN_CLUSTER)

    async def sees_primary(self) -> bool:
        """Tell whether a majority sees the primary that `locate` returned last. Nobody can say."""
        return False

    async def close(self) -> None:
        """Stop looking."""


def read_address(url: str) -> Address:
    """Parse an address. Raises ValueError."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme not in _SCHEMES:
        raise ValueError(
            "an address of Redis begins with "
            f"redis://, rediss:// or unix://, or redis{SENTINEL}:// or redis{CLUSTER}:// (rediss: with TLS), "
            f"not with {parts.scheme!r}"
        )
    address = Address(
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        password_file=options.get("password_file", ""),
        url_file=options.get("url_file", ""),
    )
    if parts.scheme == "unix":
        return address._replace(path=unquote(parts.path), db=int(options.get("db", 0)))
    address = address._replace(tls=_read_tls(options) if parts.scheme.startswith("rediss") else None)
    path = unquote(parts.path)
    if parts.scheme.endswith(SENTINEL):
        service, _, path = path.strip("/").partition("/")
        hosts = parts.netloc.rpartition("@")[2].split(",")
        if not service or not all(hosts):
            raise ValueError(f"an address of Sentinels is {parts.scheme}://host:26379,host:26379/service/0")
        found = tuple(_read_sentinel(host, address.tls, options) for host in hosts)
        address = address._replace(sentinels=found, service=service)
    elif parts.scheme.endswith(CLUSTER):
        hosts = parts.netloc.rpartition("@")[2].split(",")
        if not all(hosts) or options.get("db") or path.strip("/0"):
            raise ValueError(f"an address of a cluster is {parts.scheme}://host:6379,host:6379, without a database")
        places = (urlsplit(f"//{host}") for host in hosts)
        found = tuple(address._replace(host=unquote(one.hostname or ""), port=one.port or 6379) for one in places)
        return address._replace(nodes=found)
    else:
        host = unquote(parts.hostname or "") or "localhost"
        address = address._replace(host=host, port=parts.port or 6379)
    return address._replace(db=int(options.get("db") or path.replace("/", "") or 0))


def read_moved(reply: str, asked: str) -> tuple[str, int] | None:
    """Read where an error reply sends us: `MOVED <slot> <host>:<port>`. Without a host it is the
    one that was `asked`. None for any other reply."""
    words = reply.split()
    if words[:1] != ["MOVED"] or len(words) != 3:
        return None
    host, _, port = words[2].rpartition(":")
    return host or asked, int(port)


def _read_sentinel(host: str, tls: Tls | None, options: dict[str, str]) -> Address:
    parts = urlsplit(f"//{host}")
    return Address(
        host=unquote(parts.hostname or ""),
        port=parts.port or 26379,
        user=options.get("sentinel_user", ""),
        password=options.get("sentinel_password", ""),
        tls=None if options.get("sentinel_tls") == "no" else tls,
        password_file=options.get("sentinel_password_file", ""),
    )


def _read_tls(options: dict[str, str]) -> Tls:
    verify = options.get("ssl_cert_reqs", "required")
    if verify not in _CHECKS:
        raise ValueError(f"ssl_cert_reqs is {verify!r}; it can be {', '.join(_CHECKS)}")
    ca, cert, key = (options.get(f"ssl_{file}") for file in ("ca_certs", "certfile", "keyfile"))
    return Tls(ca, cert, key, verify)


def _read_secret(file: str) -> str:
    with open(file, encoding="utf-8") as secret:
        text = secret.read().rstrip("\r\n")
    if not text:
        raise ValueError(f"{file} is empty")
    return text
