"""Frames of the socket: parsed from clients, rendered from lines of a log, written to clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.channels.web.http.media import media_frames
from gateway.channels.web.renderer import MarkdownRenderer
from shared.errors import BadInput
from shared.messages import web
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import UserLine, with_reason
from shared.messages.schedule import is_tick
from shared.messages.subagent import ID_PREFIX
from shared.settings.sections.gateways import OWNER
from shared.store.delivery.outbox import NumberedLine

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # an id of a message, the name of a chat
LiveFrame = web.TurnFrame | web.DeltaFrame | web.ProgressFrame | web.JoinedFrame
AnswerFrame = web.WelcomeFrame | web.AcceptedFrame | web.HistoryFrame[web.LineFrame]
ListFrame = web.ChatListFrame | web.DeletedFrame | web.FoundFrame | web.FeedFrame
ServerFrame = AnswerFrame | ListFrame | web.LineFrame | LiveFrame | web.ResumedFrame | web.ErrorFrame


class _FrameIds(msgspec.Struct):
    id: Any = None  # a refused frame may have anything there
    chat: Any = None


_decode = msgspec.json.Decoder(web.ClientFrame).decode
_decode_ids = msgspec.json.Decoder(_FrameIds).decode
encode_frame: Final[Callable[[ServerFrame], bytes]] = msgspec.json.Encoder().encode
"""Writes a frame as UTF-8; the same bytes serve every socket that gets it."""


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
    if isinstance(frame, web.SendFrame | web.WithdrawFrame) and not _valid_name(frame.id):
        advice = "an id has 1 to 64 letters, digits, dashes and underscores, such as a UUID"
        raise BadInput("bad_id", advice)
    # Frames without a chat, and a withdrawal that names none, have nothing to check.
    if (chat := getattr(frame, "chat", None)) is not None and not _valid_name(chat):
        raise BadInput("bad_chat", "a chat has 1 to 64 letters, digits, dashes and underscores")
    if isinstance(frame, web.SendFrame) and not frame.text.strip() and not frame.media:
        raise BadInput("empty", "the message has no text")
    return frame


def decode_ids(raw: str) -> tuple[str | None, str | None]:
    """Return the valid id and chat, or None, that a refused frame names: its error repeats them."""
    try:
        found = _decode_ids(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    return _valid_name(found.id), _valid_name(found.chat)


def _valid_name(value: object) -> str | None:
    return value if isinstance(value, str) and NAME_PATTERN.fullmatch(value) else None


class LineRenderer:
    """Renders the lines of a chat's log as frames, Markdown as HTML."""

    def __init__(self, markdown: MarkdownRenderer) -> None:
        self._markdown = markdown

    def render_now(self, session: str, chat: str, numbered: NumberedLine) -> web.LineFrame | None:
        """Return the frame, or None when rendering would block the event loop for too long."""
        numbered = _for_owner(session, numbered)
        line = numbered.line
        if isinstance(line, UserLine):
            return _line_frame(chat, numbered)
        if not self._markdown.is_quick(line.content):
            return None
        return _line_frame(chat, numbered, self._markdown.html(line.content))

    async def render_soon(self, session: str, chat: str, numbered: NumberedLine) -> web.LineFrame:
        """Return the frame; a long text is rendered in another process, when the person whose
        session it is has their turn."""
        numbered = _for_owner(session, numbered)
        line = numbered.line
        (person, _, _) = session.rpartition("/")
        html = "" if isinstance(line, UserLine) else await self._markdown.html_soon(line.content, person)
        return _line_frame(chat, numbered, html)


def _for_owner(session: str, numbered: NumberedLine) -> NumberedLine:
    """Return the line as the owner reads it: an apology with what the model's provider said. Others
    do not: it may name the account behind the model."""
    line = numbered.line
    if isinstance(line, UserLine) or not line.refusal or not session.startswith(f"web:{OWNER}/"):
        return numbered
    return replace(numbered, line=replace(line, content=with_reason(line.content, line.refusal)))


def live_frame(chat: str, event: LiveEvent) -> LiveFrame:
    """Return the frame of a live event."""
    match event:
        case TurnEvent(turn, state, attempt):
            return web.TurnFrame(chat, turn, state, attempt)
        case DeltaEvent(turn, attempt, seq, text, full):
            return web.DeltaFrame(chat, turn, attempt, seq, text, full, event.takeovers)
        case ProgressEvent(turn, text, note):
            return web.ProgressFrame(chat, turn, text, note)
        case JoinedEvent(turn, messages):
            return web.JoinedFrame(chat, turn, messages)


def _line_frame(chat: str, numbered: NumberedLine, html: str = "") -> web.LineFrame:
    seq = numbered.seq
    line = numbered.line
    mark = numbered.mark
    media = media_frames(chat, numbered.line.media)
    if isinstance(line, UserLine):
        return web.MessageFrame(chat, seq, line.id, line.text, line.at, media, mark, line.replaces)
    turn = line.turn
    text = line.content
    at = line.at
    asked = line.approval
    ids = line.in_reply_to
    if asked is not None:
        given = asked.arguments
        digest = asked.digest
        until = asked.expires_at
        by = asked.by
        read = asked.sources
        return web.ApprovalFrame(
            chat,
            seq,
            turn,
            asked.id,
            asked.state,
            asked.tool,
            text,
            html,
            at,
            given,
            digest,
            until,
            by,
            mark,
            read,
            asked.touches,
            asked.safe,
            asked.standing,
            asked.by_name,
            asked.where,
        )
    first = ids[0] if ids else ""  # it began the turn; later messages joined it
    origin: web.Origin = "subagent" if first.startswith(ID_PREFIX) else "schedule" if is_tick(first) else ""
    by_tool = line.sent_by_tool
    labels = line.buttons
    read = line.sources
    died = line.takeovers
    cut = line.unfinished
    frame = web.ReplyFrame(
        chat, seq, turn, text, html, ids, line.kind, at, media, labels, by_tool, origin, mark, read, died, cut
    )
    if (work := line.work) is None:
        return frame
    used = line.usage
    return replace(frame, work=work, tokens=used.prompt + used.completion if used else 0)
