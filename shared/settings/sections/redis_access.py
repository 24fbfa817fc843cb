"""Settings of Redis, `[redis]`, and its address as one text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec import Meta, Struct

from shared.errors import SettingsError
from shared.settings.secret import RedisUrl, Secret
from shared.settings.sections.kinds import Text

EMBEDDED: Final = "embedded"
EMBEDDED_URL_FILE: Final = "valkey.url"  # written below `data.dir` by the embedded server
CA_FILE: Final = "ssl_ca_certs"
"""Parameter of an address: the file with the certificates to trust; redis-py's name."""
_REDIS_SCHEMES: Final = ("redis", "rediss", "unix")


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The Redis that holds all state. `embedded` is the Valkey that `make up` starts. `user` and
    `password` may stand in the address or here; `ca_file` has the certificates to trust. `copies` is
    how many servers, the primary included, must have the intent of an unsafe tool before it runs."""

    url: RedisUrl = RedisUrl(EMBEDDED)
    user: Text | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    copies: Annotated[int, Meta(ge=1, le=3)] = 1


def whole_address(redis: RedisSettings) -> str:
    """Return `redis.url` with user, password and `ca_file`. Raises SettingsError."""
    if redis.password is None and redis.ca_file is None:
        return redis.url.reveal()
    parts = urlsplit(redis.url.reveal())
    if redis.password is not None:
        login = f"{quote(redis.user or '', safe='')}:{quote(redis.password.reveal(), safe='')}"
        parts = parts._replace(netloc=f"{login}@{parts.netloc}")
    if redis.ca_file is not None:
        if not os.access(redis.ca_file, os.R_OK):
            raise SettingsError(f"redis.ca_file {str(redis.ca_file)!r} cannot be read; mount it, or name another")
        query = urlencode({CA_FILE: redis.ca_file.absolute()})
        parts = parts._replace(query=f"{parts.query}&{query}" if parts.query else query)
    return urlunsplit(parts)


def address_problems(redis: RedisSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    url = redis.url.reveal()
    named = [name for name in ("user", "password", "ca_file") if getattr(redis, name) is not None]
    if url == EMBEDDED:
        if redis.copies > 1:
            yield f"redis.copies is {redis.copies}, and the embedded server has no replica; set redis.url, or remove it"
        yield from (f"redis.{name} is of no use to the embedded server; set redis.url, or remove it" for name in named)
        return
    if redis.user is not None and redis.password is None:
        yield "redis.user is set without redis.password; set both"
    if redis.password is not None and "@" in urlsplit(url).netloc:
        yield "redis.password is set, and redis.url names a user or a password, too; keep one of them"
    if redis.ca_file is not None and not url.startswith("rediss://"):
        yield "redis.ca_file is set, but redis.url is not encrypted; write rediss://, or remove it"


def redis_url_problem(value: RedisUrl) -> str | None:
    """Check scheme, host, port and socket of the address."""
    url = value.reveal()
    if url == EMBEDDED:
        return None
    advice = f"use redis://, rediss:// or unix:// (or {EMBEDDED!r})"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"is no address; {advice}"
    if parts.scheme not in _REDIS_SCHEMES:
        return f"has the scheme {parts.scheme!r}; {advice}"
    if parts.scheme == "unix" and not parts.path:
        return "names no socket; write unix:///path/to/socket"
    if parts.scheme != "unix" and not parts.hostname:
        return f"names no host; write {parts.scheme}://host:6379/0"
    return "has port 0; write the port of the Redis" if port == 0 else None
