"""The record of a conversation for a model that sums it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from worker.agent.tools.text import shorten

Message = dict[str, Any]
LEAST_CHARS: Final = 200  # what is left of a text however little room there is


def render_record(messages: Sequence[Message], task: Message, room_chars: int) -> str:
    """Return the messages as text for the summary, each cut to the same length so that all fit."""
    lines = [f"{message['role'].upper()}: {_render_message(message)}" for message in messages]
    asked = shorten(content_text(task["content"]), room_chars // 4)
    limit = room_chars
    while limit > LEAST_CHARS and sum(min(len(line), limit) for line in lines) > room_chars * 3 // 4:
        limit = max(LEAST_CHARS, limit * 3 // 4)
    head = f"The task that the agent is working on now:\n{asked}"
    return "\n\n".join([head, "The record:", *(shorten(line, limit) for line in lines)])


def _render_message(message: Message) -> str:
    asked = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [f"(calls {one['name']} with {one['arguments']})" for one in asked]
    return "\n".join([content_text(message["content"]), *calls])


def content_text(content: Any) -> str:
    """Return the content of a message as text; a picture becomes its type in brackets."""
    if isinstance(content, list):
        return "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)
    return content or ""
