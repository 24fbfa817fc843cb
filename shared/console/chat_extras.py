"""What a terminal shows of a reply that has more than text: its files by name, its buttons by number."""

from __future__ import annotations

from shared.console.chat_frames import Reply
from shared.console.plain import size


def shown_text(reply: Reply) -> str:
    """The text, then a line for each file, then the answers on offer."""
    files = [f"[file: {file.name}, {size(file.size)}; the chat page has it]" for file in reply.media]
    buttons = [f"{number}. {label}" for number, label in enumerate(reply.buttons, 1)]
    return "\n\n".join(part for part in (reply.text, "\n".join(files), "\n".join(buttons)) if part)


def is_silent(reply: Reply) -> bool:
    """Whether it only ends its turn: the agent has said everything by its message tool."""
    return reply.kind == "reply" and not reply.text and not reply.media
