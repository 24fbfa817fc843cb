"""Shared parts of the platforms' settings: read and check a table, judge an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from gateway.platform.access import AccessSettings, IdForm, read_channel
from shared.errors import SettingsError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

T = TypeVar("T", bound=AccessSettings)


def read_settings(
    kind: type[T],
    name: str,
    table: Mapping[str, Any],
    *,
    ids: IdForm,
    find_problems: Callable[[str, T], Iterable[str]],
) -> T:
    """Read the table `[channels.<name>]`. `find_problems` is given the table's name and the
    settings, and yields one line per problem. Raises SettingsError with all of them."""
    settings = read_channel(kind, name, table, ids=ids)
    if problems := list(find_problems(f"channels.{name}", settings)):
        raise SettingsError("\n".join(problems))
    return settings


def is_safe_address(address: str) -> bool:
    """Return whether a secret may be sent there: over TLS, or to this machine."""
    try:
        url = urlsplit(address)
        _ = url.port  # raises ValueError for one out of range, which hostname does not notice
    except ValueError:
        return False
    return bool(url.hostname) and (url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK))
