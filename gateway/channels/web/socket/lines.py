"""Stored records as frames."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.channels.web.http.media import media_frames
from gateway.channels.web.markdown import MarkdownRenderer
from gateway.channels.web.socket.protocol import ServerFrame
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX
from shared.messages.web import (
    ApprovalFrame,
    DeltaFrame,
    JoinedFrame,
    LineFrame,
    MessageFrame,
    Origin,
    ProgressFrame,
    ReplyFrame,
    TurnFrame,
)
from shared.store.delivery.outbox import NumberedLine


class LineRenderer:
    """Turns lines of a chat's log into frames; replies are rendered."""

    def __init__(self, markdown: MarkdownRenderer) -> None:
        self._markdown = markdown

    def render_now(self, chat: str, numbered: NumberedLine) -> LineFrame | None:
        """The frame, or None when rendering would hold the event loop up."""
        match numbered.line:
            case UserLine() as said:
                return _message_frame(chat, numbered.seq, said)
            case OutboundMessage() as reply:
                if not self._markdown.is_quick(reply.content):
                    return None
                return _reply_frame(chat, numbered.seq, reply, self._markdown.html(reply.content))

    async def render_soon(self, chat: str, numbered: NumberedLine) -> LineFrame:
        """The frame, rendered beside the event loop."""
        match numbered.line:
            case UserLine() as said:
                return _message_frame(chat, numbered.seq, said)
            case OutboundMessage() as reply:
                return _reply_frame(chat, numbered.seq, reply, await self._markdown.html_soon(reply.content))


def live_frame(chat: str, event: LiveEvent) -> ServerFrame:
    """What is shown while a turn runs."""
    match event:
        case TurnEvent(turn, state, attempt):
            return TurnFrame(chat, turn, state, attempt)
        case DeltaEvent(turn, attempt, seq, text, full):
            return DeltaFrame(chat, turn, attempt, seq, text, full)
        case ProgressEvent(turn, text):
            return ProgressFrame(chat, turn, text)
        case JoinedEvent(turn, messages):
            return JoinedFrame(chat, turn, messages)


def _message_frame(chat: str, seq: int, line: UserLine) -> MessageFrame:
    return MessageFrame(chat, seq, line.id, line.text, line.at, media_frames(chat, line.media))


def _reply_frame(chat: str, seq: int, line: OutboundMessage, html: str) -> ReplyFrame | ApprovalFrame:
    if (asked := line.approval) is not None:
        return ApprovalFrame(
            chat, seq, line.turn, asked.id, asked.state, asked.tool, line.content, html, line.at, asked.arguments,
            asked.digest, asked.expires_at, asked.by,
        )  # fmt: skip
    files = media_frames(chat, line.media)
    return ReplyFrame(
        chat, seq, line.turn, line.content, html, line.in_reply_to, line.kind, line.at, files, line.buttons,
        line.sent_by_tool,
        _origin(line.in_reply_to),
    )  # fmt: skip


def _origin(ids: Sequence[str]) -> Origin:
    """By the id of the message that the turn began with; what joined it later stands behind."""
    first = ids[0] if ids else ""
    if first.startswith(ID_PREFIX):
        return "subagent"
    return "schedule" if is_tick(first) else ""
