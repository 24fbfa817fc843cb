"""Reads the frames of clients, checking what their types cannot, and writes those of the gateway."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from shared.errors import BadInput
from shared.messages.web import (
    AcceptedFrame,
    ChatListFrame,
    ClientFrame,
    DeltaFrame,
    ErrorFrame,
    HistoryFrame,
    JoinedFrame,
    LineFrame,
    ProgressFrame,
    ResumedFrame,
    SendFrame,
    TurnFrame,
    WelcomeFrame,
    WithdrawFrame,
)

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An id of a message, and the name of a chat."""

ServerFrame = (
    WelcomeFrame
    | AcceptedFrame
    | LineFrame
    | TurnFrame
    | DeltaFrame
    | ProgressFrame
    | JoinedFrame
    | ResumedFrame
    | ChatListFrame
    | HistoryFrame[LineFrame]
    | ErrorFrame
)


class _FrameIds(msgspec.Struct):
    # Any: a refused frame may have anything there.
    id: Any = None
    chat: Any = None


_decode = msgspec.json.Decoder(ClientFrame).decode
_decode_ids = msgspec.json.Decoder(_FrameIds).decode
_encode = msgspec.json.Encoder().encode


def decode_frame(raw: str) -> ClientFrame:
    """Parse a frame of a client. Raises BadInput: `bad_frame`, `bad_chat`, `bad_id` or `empty`."""
    try:
        frame: ClientFrame = _decode(raw)
    except msgspec.ValidationError as exc:
        raise BadInput("bad_frame", f"this is not a frame that we know: {exc}") from None
    except msgspec.DecodeError:
        raise BadInput("bad_frame", "a frame must be one JSON object") from None
    except RecursionError:
        raise BadInput("bad_frame", "the frame is nested too deeply") from None
    match frame:
        case SendFrame(id=id) | WithdrawFrame(id=id) if not NAME_PATTERN.fullmatch(id):
            raise BadInput("bad_id", "an id has 1 to 64 letters, digits, dashes and underscores, such as a UUID")
    # Frames without a chat, and a withdrawal that names none, have nothing to check.
    chat = getattr(frame, "chat", None)
    if chat is not None and not NAME_PATTERN.fullmatch(chat):
        raise BadInput("bad_chat", "a chat has 1 to 64 letters, digits, dashes and underscores")
    if isinstance(frame, SendFrame) and not frame.text.strip() and not frame.media:
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
