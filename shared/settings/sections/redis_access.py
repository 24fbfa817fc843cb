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
CA_FILE: Final = "ssl_ca_certs"  # parameter of an address: certificates to trust; redis-py's name
_REDIS_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The Redis that holds all state. `embedded` is the Valkey that `make up` starts. `user` and
    `password` may stand in the address or here; `ca_file` has the certificates to trust;
    `sentinel_user` and `sentinel_password` are for the Sentinels of the address. `copies` is how
    many servers, the primary included, must have a write before it counts as done."""

    url: RedisUrl = RedisUrl(EMBEDDED)
    user: Text | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    sentinel_user: Text | None = None
    sentinel_password: Secret | None = None
    copies: Annotated[int, Meta(ge=1, le=3)] = 1


def whole_address(redis: RedisSettings) -> str:
    """Return `redis.url` with user, password, `ca_file`, and the files in which a password may
    change. Raises SettingsError."""
    parts = urlsplit(redis.url.reveal())
    options: dict[str, object] = {}
    if redis.password is not None:
        parts = parts._replace(
            netloc=f"{quote(redis.user or '', safe='')}:{quote(redis.password.reveal(), safe='')}@{parts.netloc}"
        )
        options["password_file"] = redis.password.file
    elif "@" in parts.netloc:
        options["url_file"] = redis.url.file
    if redis.sentinel_password is not None:
        options["sentinel_user"] = redis.sentinel_user
        options["sentinel_password"] = redis.sentinel_password.reveal()
        options["sentinel_password_file"] = redis.sentinel_password.file
    if redis.ca_file is not None:
        if not os.access(redis.ca_file, os.R_OK):
            raise SettingsError(f"redis.ca_file {str(redis.ca_file)!r} cannot be read; mount it, or name another")
        options[CA_FILE] = redis.ca_file.absolute()
    query = urlencode({name: value for name, value in options.items() if value})
    if not query and redis.password is None:
        return redis.url.reveal()
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query)))))


def address_problems(redis: RedisSettings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    url = redis.url.reveal()
    named = [name for name in ("user", "password", "ca_file", "sentinel_password") if getattr(redis, name) is not None]
    if url == EMBEDDED:
        if redis.copies > 1:
            yield f"redis.copies is {redis.copies}, and the embedded server has no replica; set redis.url, or remove it"
        yield from (f"redis.{name} is of no use to the embedded server; set redis.url, or remove it" for name in named)
        return
    if redis.user is not None and redis.password is None:
        yield "redis.user is set without redis.password; set both"
    if redis.password is not None and "@" in urlsplit(url).netloc:
        yield "redis.password is set, and redis.url names a user or a password, too; keep one of them"
    if (redis.sentinel_user or redis.sentinel_password) and "+sentinel:" not in url:
        yield "redis.sentinel_password is set, but redis.url names no Sentinels; write redis+sentinel://, or remove it"
    if redis.sentinel_user is not None and redis.sentinel_password is None:
        yield "redis.sentinel_user is set without redis.sentinel_password; set both"
    if redis.ca_file is not None and not url.startswith("rediss"):
        yield "redis.ca_file is set, but redis.url is not encrypted; write rediss://, or remove it"


def redis_url_problem(value: RedisUrl) -> str | None:
    """Check scheme, host, port and socket of the address."""
    url = value.reveal()
    if url == EMBEDDED:
        return None
    advice = f"use redis://, rediss:// or unix://, redis+sentinel:// or redis+cluster:// (or {EMBEDDED!r})"
    try:
        parts = urlsplit(url)
        hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
        ports = [host.port for host in hosts]
    except ValueError:
        return f"is not an address; {advice}"
    if parts.scheme not in _REDIS_SCHEMES:
        return f"has the scheme {parts.scheme!r}; {advice}"
    if parts.scheme == "unix" and not parts.path:
        return "names no socket; write unix:///path/to/socket"
    if parts.scheme.endswith("+sentinel"):
        if not parts.path.strip("/") or not all(host.hostname for host in hosts):
            return f"names no Sentinels or no primary; write {parts.scheme}://host:26379,host:26379/mymaster/0"
    elif parts.scheme.endswith("+cluster"):
        if not all(host.hostname for host in hosts):
            return f"names no node of a cluster; write {parts.scheme}://host:6379,host:6379"
        if parts.path.strip("/0"):
            return "names a database; a cluster has only one, so leave it out"
    elif parts.scheme != "unix" and not parts.hostname:
        return f"names no host; write {parts.scheme}://host:6379/0"
    elif len(hosts) > 1:
        return f"names several hosts; Sentinels are {parts.scheme}+sentinel://, a cluster is {parts.scheme}+cluster://"
    return "has port 0; write the port of the Redis" if 0 in ports else None
