"""What a terminal shows of a reply that has more than text: its files by name, its buttons by
number."""

from __future__ import annotations

from shared.messages.web import ReplyFrame
from shared.terminal_text import size


def shown_text(reply: ReplyFrame) -> str:
    """The text, then a line for each file, then the answers on offer."""
    files = [f"[file: {file.name}, {size(file.size)}; the chat page has it]" for file in reply.media]
    buttons = [f"{number}. {label}" for number, label in enumerate(reply.buttons, 1)]
    return "\n\n".join(part for part in (reply.text, "\n".join(files), "\n".join(buttons)) if part)


def ends_offers(reply: ReplyFrame) -> bool:
    """Whether answers on offer before it are over: the agent said something else, or a command
    ended all turns. Notices, the answers of other commands, and what is not shown leave them."""
    if reply.kind == "command":
        return reply.turn > 0
    return reply.sent_by_tool or (reply.kind != "notice" and not is_silent(reply))


def is_silent(reply: ReplyFrame) -> bool:
    """Whether it only ends its turn: the agent has said everything by its message tool."""
    return reply.kind == "reply" and not reply.text and not reply.media
