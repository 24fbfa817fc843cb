"""Marks that tell a provider what of a prompt stays the same, so that it reads it once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def marked_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, with a mark on the system text when they begin with one."""
    if not messages or messages[0].get("role") != "system" or not isinstance(messages[0].get("content"), str):
        return list(messages)
    system = {**messages[0], "content": [{"type": "text", "text": messages[0]["content"], **_MARK}]}
    return [system, *messages[1:]]


def marked_tools(offers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The offered tools, with a mark on the last."""
    marked = [dict(offer) for offer in offers]
    if marked:
        marked[-1] |= _MARK
    return marked
