"""What a kind and a range cannot say about a setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from shared.settings.address import address_problems
from shared.settings.approval import approval_problems
from shared.settings.busy import busy_problems
from shared.settings.mcp import mcp_problems
from shared.settings.secret import RedisUrl, Secret
from shared.settings.sections import EMBEDDED, Settings
from shared.settings.senders import senders_problems
from shared.settings.tracing import endpoint_problem

_REDIS_SCHEMES: Final = ("redis", "rediss", "unix")
_PRINCIPAL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.IGNORECASE)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
OWNER: Final = "owner"


def problem_in(key: str, value: object) -> str | None:
    """What is wrong with the value of `key`, as the end of a sentence that begins with its name;
    None when fine."""
    check = _CHECKS.get(key)
    return check(value) if check else None


def problems_between(settings: Settings) -> Iterator[str]:
    """What is wrong with settings that are fine one by one."""
    web = settings.web
    if web.token is not None and OWNER in web.tokens:
        yield f"web.token and web.tokens.{OWNER} are both set; they name the same person, keep one of them"
    holders: dict[Secret, str] = {}
    for name, token in [*([("web.token", web.token)] if web.token else []), *web.tokens.items()]:
        other = holders.setdefault(token, name)
        if other != name:
            yield f"web.tokens.{name} is the same secret as {other}; give each person an own one"
    model = settings.model
    if model.total_s < model.first_token_s:
        yield "model.total_s is shorter than model.first_token_s; a model could never use its time, raise it"
    memory = settings.memory
    if memory.keep >= memory.consolidate_at:
        yield "memory.keep must be below memory.consolidate_at, or nothing would ever be consolidated; lower it"
    yield from address_problems(settings.redis)
    yield from mcp_problems(settings.mcp)
    yield from busy_problems(settings.channels)
    yield from senders_problems(settings.channels)
    yield from approval_problems(settings.approval)


def _redis_url(value: RedisUrl) -> str | None:
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


def _http_url(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        fine = False
    return None if fine else f"is {value!r}; write a whole address such as https://host/v1"


def _origins(value: tuple[str, ...]) -> str | None:
    for origin in value:
        try:
            parts = urlsplit(origin)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            fine = False
        if not fine or origin != f"{parts.scheme}://{parts.netloc}":
            return f"has {origin!r}; write scheme://host[:port] and nothing more, such as https://chat.example.org"
    return None


def _principals(value: dict[str, Secret]) -> str | None:
    for name in value:
        if not _PRINCIPAL.fullmatch(name):
            return f"has the name {name!r}; use 1 to 64 letters, digits, dots, dashes and underscores"
    return None


def _headers(value: dict[str, Secret]) -> str | None:
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or not (text.reveal().isascii() and text.reveal().isprintable()):
            return f"has {name!r}, which no HTTP request can carry; write a plain name and a value in ASCII"
    return None


def _presets(value: dict[str, object]) -> str | None:
    for name in value:
        if not _PRINCIPAL.fullmatch(name) or name.casefold() == "default":
            return f"has the name {name!r}; use letters, digits, dots and dashes, and not 'default', the usual model"
    return None


def _timezone(value: str | None) -> str | None:
    if value is None:
        return None
    from zoneinfo import ZoneInfo  # only who sets a timezone pays for it

    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        return f"is {value!r}, which is no timezone; write a name such as Europe/Berlin"
    return None


_CHECKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "redis.url": _redis_url,
    "model.api_base": _http_url,
    "web.allowed_origins": _origins,
    "web.tokens": _principals,
    "agent.timezone": _timezone,
    "model.presets": _presets,
    "model.headers": _headers,
    "tracing.endpoint": endpoint_problem,
    "tracing.headers": _headers,
}
