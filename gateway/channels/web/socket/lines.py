"""Stored records as frames."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.channels.web.http.media import media_frames
from gateway.channels.web.markdown import Markdown
from gateway.channels.web.socket.approval_frames import ApprovalFrame
from gateway.channels.web.socket.protocol import (
    About,
    Delta,
    JoinedFrame,
    LineFrame,
    Progress,
    Reply,
    Said,
    ServerFrame,
    TurnFrame,
)
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, SaidLine
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX
from shared.store.delivery.outbox import NumberedLine


class Lines:
    """Turns lines of a chat's log into frames; replies are rendered."""

    def __init__(self, markdown: Markdown) -> None:
        self._markdown = markdown

    def at_once(self, chat: str, numbered: NumberedLine) -> LineFrame | None:
        """The frame, or None when rendering would hold the event loop up."""
        match numbered.line:
            case SaidLine() as said:
                return _said(chat, numbered.seq, said)
            case OutboundMessage() as reply:
                if not self._markdown.quick(reply.content):
                    return None
                return _reply(chat, numbered.seq, reply, self._markdown.html(reply.content))

    async def soon(self, chat: str, numbered: NumberedLine) -> LineFrame:
        """The frame, rendered beside the event loop."""
        match numbered.line:
            case SaidLine() as said:
                return _said(chat, numbered.seq, said)
            case OutboundMessage() as reply:
                return _reply(chat, numbered.seq, reply, await self._markdown.html_soon(reply.content))


def live_frame(chat: str, event: LiveEvent) -> ServerFrame:
    """What is shown while a turn runs."""
    match event:
        case TurnEvent(turn, state, attempt):
            return TurnFrame(chat, turn, state, attempt)
        case DeltaEvent(turn, attempt, seq, text, full):
            return Delta(chat, turn, attempt, seq, text, full)
        case ProgressEvent(turn, text):
            return Progress(chat, turn, text)
        case JoinedEvent(turn, messages):
            return JoinedFrame(chat, turn, messages)


def _said(chat: str, seq: int, line: SaidLine) -> Said:
    return Said(chat, seq, line.id, line.text, line.at, media_frames(chat, line.media))


def _reply(chat: str, seq: int, line: OutboundMessage, html: str) -> Reply | ApprovalFrame:
    if (asked := line.approval) is not None:
        return ApprovalFrame(
            chat, seq, line.turn, asked.id, asked.state, asked.tool, line.content, html, line.at, asked.arguments,
            asked.digest, asked.expires_at, asked.by,
        )  # fmt: skip
    files = media_frames(chat, line.media)
    return Reply(
        chat, seq, line.turn, line.content, html, line.in_reply_to, line.kind, line.at, files, line.buttons, line.said,
        _about(line.in_reply_to),
    )  # fmt: skip


def _about(ids: Sequence[str]) -> About:
    """By the id of the message that the turn began with; what joined it later stands behind."""
    first = ids[0] if ids else ""
    if first.startswith(ID_PREFIX):
        return "subagent"
    return "schedule" if is_tick(first) else ""
