"""Checks of the work of hooks: a part of it that cannot be sent is refused as a whole."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.agent.hook import Iteration


def check_messages(context: Iteration, kept: list[dict[str, Any]], _answer: Any) -> bool:
    """Return True if the messages that a hook left can be sent at all; raise otherwise."""
    if context.messages == kept:
        return True
    for message in context.messages:
        content = message.get("content")
        if not isinstance(message["role"], str):
            raise TypeError("the role of a message is not text")
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            raise TypeError("a part of a message is not a dict")
        if not isinstance(content, str | list | None):
            raise TypeError(f"the content of a message is of type {type(content).__name__}")
    msgspec.json.encode(context.messages)
    return True


def checked_refusals(answer: Any) -> dict[str, str]:
    """Return the refusals as a dict. Raises TypeError if they are no texts."""
    refused = dict(answer or {})
    if not all(isinstance(text, str) for pair in refused.items() for text in pair):
        raise TypeError("before_execute_tools must answer {call id: reason}, both text")
    return refused


def checked_text(answer: Any) -> str | None:
    """Return the text or None. Raises TypeError for anything else."""
    if answer is not None and not isinstance(answer, str):
        raise TypeError(f"finalize_content answered {type(answer).__name__}; it must be text")
    return answer
