"""Builders of messages and claims for tests."""

from __future__ import annotations

from itertools import count

from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.turns.inbox import Accepted, Inbox

_ids = count(1)


def message(
    content: str = "hello", *, chat: str = "owner/a", id: str | None = None, channel: str = "web"
) -> InboundMessage:
    """A message of principal `owner` with an id of its own."""
    return InboundMessage(
        channel=channel,
        chat_id=chat,
        sender_id="owner",
        id=id or f"m{next(_ids)}",
        content=content,
        timestamp=1_700_000_000_000,
    )


def reply(content: str, turn: int) -> OutboundMessage:
    """A line that answers turn `turn`."""
    return OutboundMessage(content=content, turn=turn)


async def say(inbox: Inbox, content: str = "hello", *, chat: str = "owner/a", id: str | None = None) -> Accepted:
    """Ingest a message as the web gateway does."""
    sent = message(content, chat=chat, id=id)
    return await inbox.ingest(sent, log_line=UserLine(id=sent.id, text=content), principal="owner")
