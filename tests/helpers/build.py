"""Builders of messages and claims for tests."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store import keys
from shared.store.turns.inbox import Accepted, Inbox
from shared.store.turns.queue import Claim, TurnWork

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


async def say(
    inbox: Inbox, content: str = "hello", *, chat: str = "owner/a", id: str | None = None, media: tuple[str, ...] = ()
) -> Accepted:
    """Ingest a message as the web gateway does."""
    sent = replace(message(content, chat=chat, id=id), media=media)
    return await inbox.ingest(sent, log_line=UserLine(id=sent.id, text=content), principal="owner")


def claim_of(session: str, *, turn: int = 1, attempt: int = 1, token: str = "1") -> Claim:
    """A claim of a turn, as if a worker had acquired it."""
    work = TurnWork(turn, b"", 0, 0, 0, attempt, 0, (), ())
    return Claim(keys.turn(session), "w" * 32, token, 0, False, work)
