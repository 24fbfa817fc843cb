"""Settings as they may be shown, and the values that the log must never show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from shared.settings.secret import RedisUrl, Secret
from shared.settings.sections.settings import Settings


def shown(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values, secrets masked."""
    plain: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=_plain)
    return plain


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield every secret value, also the password inside an address; some more than once."""
    for value in _leaves(msgspec.structs.asdict(settings)):
        if isinstance(value, RedisUrl):
            password = urlsplit(value.reveal()).password
            if password:
                yield password
                yield unquote(password)
        elif isinstance(value, Secret):
            yield value.reveal()


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _plain(value: object) -> str:
    if isinstance(value, (Secret, Path)):
        return str(value)
    raise NotImplementedError(f"a setting of kind {type(value).__name__} cannot be shown")
