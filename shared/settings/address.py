"""The address of a Redis as one text: what every client, also the guardian's, is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from shared.errors import SettingsError
from shared.settings.sections import EMBEDDED, RedisSettings

CA_FILE: Final = "ssl_ca_certs"
"""The parameter of an address that names the file with the certificates to believe; redis-py's own
name."""


def whole_address(redis: RedisSettings) -> str:
    """`redis.url` with `user`, `password` and `ca_file` in it. Raises SettingsError for a file that
    cannot be read."""
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
    """What is wrong with settings that are fine one by one."""
    url = redis.url.reveal()
    named = [name for name in ("user", "password", "ca_file") if getattr(redis, name) is not None]
    if url == EMBEDDED:
        yield from (f"redis.{name} is of no use to the embedded server; set redis.url, or remove it" for name in named)
        return
    if redis.user is not None and redis.password is None:
        yield "redis.user is set without redis.password; set both"
    if redis.password is not None and "@" in urlsplit(url).netloc:
        yield "redis.password is set, and redis.url names a user or a password, too; keep one of them"
    if redis.ca_file is not None and not url.startswith("rediss://"):
        yield "redis.ca_file is set, but redis.url is not encrypted; write rediss://, or remove it"
