"""Read plain values of JSON whose form is a stranger's: what is not there, or of another type, is
empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_at(body: object, *path: str) -> str:
    """Return the text under these keys, one inside the other."""
    for key in path:
        body = body.get(key) if isinstance(body, Mapping) else None
    return body if isinstance(body, str) else ""


def dicts_at(body: object, key: str) -> list[dict[str, Any]]:
    """Return the objects under a key, which has a list of them, or one."""
    return dicts_in(body.get(key)) if isinstance(body, Mapping) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list, or the only one."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
