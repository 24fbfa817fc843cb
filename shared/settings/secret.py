"""Values that must not be printed by accident."""

from __future__ import annotations

import hmac
import re
from pathlib import Path

from shared.redaction import MASK

_URL_PASSWORD = re.compile(r"(?<=://)([^/@?#]*):[^/?#]*(?=@)")
_QUERY_PASSWORD = re.compile(r"([?&](?:sentinel_)?(?:password|username)=)[^&#]*")


class Secret:
    """A string that prints as `***`. Only `reveal()` returns it, so that every use can be searched.
    `file` is the file that it was read from, if any: watch it to notice a rotated secret."""

    __slots__ = ("_value", "file")

    def __init__(self, value: str, file: Path | None = None) -> None:
        self._value = value
        self.file = file

    def reveal(self) -> str:
        """Return the secret itself."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)


class SecretUrl(Secret):
    """An address that may hold a password. Prints with that masked."""

    __slots__ = ()

    def __str__(self) -> str:
        url = _URL_PASSWORD.sub(rf"\1:{MASK}", self._value)
        return _QUERY_PASSWORD.sub(rf"\1{MASK}", url)


class RedisUrl(SecretUrl):
    """The address of a Redis, or `embedded`."""

    __slots__ = ()


class ProxyUrl(SecretUrl):
    """The address of a proxy, or `direct`."""

    __slots__ = ()

    def __str__(self) -> str:
        # It may not have been checked yet: of one that is written wrongly nothing is shown.
        shown = super().__str__()
        return shown if "@" not in shown or f":{MASK}@" in shown else MASK
