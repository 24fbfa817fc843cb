"""Frames of the socket: parsed from clients, rendered from lines of a log, written to clients."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.channels.web.http.media import media_frames
from gateway.channels.web.markdown import MarkdownRenderer
from shared.errors import BadInput
from shared.messages import web
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX
from shared.store.delivery.outbox import NumberedLine

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An id of a message, and the name of a chat."""

LiveFrame = web.TurnFrame | web.DeltaFrame | web.ProgressFrame | web.JoinedFrame
AnswerFrame = web.WelcomeFrame | web.AcceptedFrame | web.ChatListFrame | web.HistoryFrame[web.LineFrame]
ServerFrame = AnswerFrame | web.LineFrame | LiveFrame | web.ResumedFrame | web.ErrorFrame


class _FrameIds(msgspec.Struct):
    # Any: a refused frame may have anything there.
    id: Any = None
    chat: Any = None


_decode = msgspec.json.Decoder(web.ClientFrame).decode
_decode_ids = msgspec.json.Decoder(_FrameIds).decode
_encode = msgspec.json.Encoder().encode


def decode_frame(raw: str) -> web.ClientFrame:
    """Parse a frame of a client. Raises BadInput: `bad_frame`, `bad_chat`, `bad_id` or `empty`."""
    try:
        frame: web.ClientFrame = _decode(raw)
    except msgspec.ValidationError as exc:
        raise BadInput("bad_frame", f"this is not a frame that we know: {exc}") from None
    except msgspec.DecodeError:
        raise BadInput("bad_frame", "a frame must be one JSON object") from None
    except RecursionError:
        raise BadInput("bad_frame", "the frame is nested too deeply") from None
    match frame:
        case web.SendFrame(id=id) | web.WithdrawFrame(id=id) if not NAME_PATTERN.fullmatch(id):
            raise BadInput("bad_id", "an id has 1 to 64 letters, digits, dashes and underscores, such as a UUID")
    # Frames without a chat, and a withdrawal that names none, have nothing to check.
    chat = getattr(frame, "chat", None)
    if chat is not None and not NAME_PATTERN.fullmatch(chat):
        raise BadInput("bad_chat", "a chat has 1 to 64 letters, digits, dashes and underscores")
    if isinstance(frame, web.SendFrame) and not frame.text.strip() and not frame.media:
        raise BadInput("empty", "the message has no text")
    return frame


def decode_ids(raw: str) -> tuple[str | None, str | None]:
    """Return the message id and the chat that a refused frame names, None where it has no valid
    one. The error frame repeats them, so that a client knows which frame was refused."""
    try:
        found = _decode_ids(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    return _valid_name(found.id), _valid_name(found.chat)


def encode_frame(frame: ServerFrame) -> bytes:
    """Write a frame as UTF-8; the same bytes serve every socket that gets it."""
    return _encode(frame)


def _valid_name(value: object) -> str | None:
    return value if isinstance(value, str) and NAME_PATTERN.fullmatch(value) else None


class LineRenderer:
    """Renders the lines of a chat's log as frames, Markdown as HTML."""

    def __init__(self, markdown: MarkdownRenderer) -> None:
        self._markdown = markdown

    def render_now(self, chat: str, numbered: NumberedLine) -> web.LineFrame | None:
        """Return the frame, or None when rendering would block the event loop for too long."""
        reply = numbered.line
        if isinstance(reply, UserLine):
            return _message_frame(chat, numbered.seq, reply)
        if not self._markdown.is_quick(reply.content):
            return None
        return _reply_frame(chat, numbered.seq, reply, self._markdown.html(reply.content))

    async def render_soon(self, chat: str, numbered: NumberedLine) -> web.LineFrame:
        """Return the frame; a long text is rendered in a thread."""
        reply = numbered.line
        if isinstance(reply, UserLine):
            return _message_frame(chat, numbered.seq, reply)
        return _reply_frame(chat, numbered.seq, reply, await self._markdown.html_soon(reply.content))


def live_frame(chat: str, event: LiveEvent) -> LiveFrame:
    """Return the frame of a live event."""
    match event:
        case TurnEvent(turn, state, attempt):
            return web.TurnFrame(chat, turn, state, attempt)
        case DeltaEvent(turn, attempt, seq, text, full):
            return web.DeltaFrame(chat, turn, attempt, seq, text, full)
        case ProgressEvent(turn, text):
            return web.ProgressFrame(chat, turn, text)
        case JoinedEvent(turn, messages):
            return web.JoinedFrame(chat, turn, messages)


def _message_frame(chat: str, seq: int, line: UserLine) -> web.MessageFrame:
    return web.MessageFrame(chat, seq, line.id, line.text, line.at, media_frames(chat, line.media))


def _reply_frame(chat: str, seq: int, line: OutboundMessage, html: str) -> web.ReplyFrame | web.ApprovalFrame:
    turn, text, at, asked, ids = line.turn, line.content, line.at, line.approval, line.in_reply_to
    if asked is not None:
        given, digest, until = asked.arguments, asked.digest, asked.expires_at
        return web.ApprovalFrame(
            chat, seq, turn, asked.id, asked.state, asked.tool, text, html, at, given, digest, until, asked.by
        )
    media, first = media_frames(chat, line.media), ids[0] if ids else ""
    # The first message began the turn; later ones joined it.
    origin: web.Origin = "subagent" if first.startswith(ID_PREFIX) else "schedule" if is_tick(first) else ""
    by_tool = line.sent_by_tool
    return web.ReplyFrame(chat, seq, turn, text, html, ids, line.kind, at, media, line.buttons, by_tool, origin)
