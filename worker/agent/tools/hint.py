"""Tool calls as a line for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.text import shorten

HINT_CHARS: Final = 40


def tool_hint(calls: Sequence[ToolCallRequest]) -> str:
    """Return the calls as a line for people: `calculate("2+2"), current_time()`."""
    return ", ".join(f"{call.name}({_first_argument(call)})" for call in calls)


def _first_argument(call: ToolCallRequest) -> str:
    if call.arguments is None:
        return "…"
    for value in call.arguments.values():
        if isinstance(value, str):
            return f'"{shorten(value, HINT_CHARS)}"'
        try:
            return shorten(msgspec.json.encode(value).decode(), HINT_CHARS)
        except (TypeError, ValueError, RecursionError):
            return "…"
    return ""
