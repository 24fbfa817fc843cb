"""Build message bodies for the Cloud API
(developers.facebook.com/docs/whatsapp/cloud-api/reference/messages). Pure.

Choices become buttons, or the rows of a list when there are more than three, or longer ones, or a
longer text. Lengths are counted in UTF-16 code units, the strictest way of counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from gateway.channels.whatsapp.parse import NUMBER
from gateway.platform.protocol import Button, File, Post
from gateway.text.characters import utf16

CHOICES: Final = 10
"""Rows of a list."""

_BUTTONS: Final = 3
_BUTTON_CHARS: Final = 20
_BUTTON_TEXT_CHARS: Final = 1024
_ROW_CHARS: Final = 24
_ROW_ABOUT_CHARS: Final = 72
_SAYS_CHARS: Final = 200
_CHOOSE: Final = "Choose"

_IMAGE_BYTES: Final = 5 * 1024 * 1024
_IMAGES: Final = ("image/jpeg", "image/png")
_VIDEOS: Final = ("video/mp4", "video/3gpp")
_SOUNDS: Final = ("audio/aac", "audio/mp4", "audio/mpeg", "audio/amr", "audio/ogg")
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_UPLOADS: Final = frozenset(
    [
        *_IMAGES,
        *_VIDEOS,
        *_SOUNDS,
        "image/webp",
        "application/pdf",
        "text/plain",
        f"{_OFFICE}.wordprocessingml.document",
        f"{_OFFICE}.spreadsheetml.sheet",
        f"{_OFFICE}.presentationml.presentation",
    ]
)

FileKind = Literal["image", "audio", "video", "document"]
Content = dict[str, Any]


def is_supported(file: File) -> bool:
    """Return whether WhatsApp accepts files of this type; it rejects GIF, WAV and FLAC."""
    return file.media_type in _UPLOADS


def text_message(post: Post, text: str) -> Content:
    """Return a text with the buttons of a post."""
    if not post.buttons:
        return _message(post, "text", {"body": text, "preview_url": False})
    if any(utf16(button.says) > _SAYS_CHARS for button in post.buttons):
        body = _append_choices(text, post.buttons)
        return _message(post, "text", {"body": body, "preview_url": False})
    choices = tuple({button.says: button for button in post.buttons}.values())
    if _fits_buttons(text, choices):
        return _message(post, "interactive", _buttons(text, choices))
    rows = [_list_row(button) for button in choices[:CHOICES]]
    action = {"button": _CHOOSE, "sections": [{"title": _CHOOSE, "rows": rows}]}
    return _message(post, "interactive", {"type": "list", "body": {"text": text}, "action": action})


def file_message(post: Post, file: File, media_id: str) -> Content:
    """Return an uploaded file with the buttons of a post."""
    kind = _file_kind(file)
    if kind == "audio" and post.buttons:
        kind = "document"  # a voice message has neither words nor buttons
    content: Content = {"id": media_id}
    if kind == "document":
        content["filename"] = file.name
    if not post.buttons:
        return _message(post, kind, content)
    if _fits_buttons(file.name, post.buttons):
        header = {"type": kind, kind: content}
        return _message(post, "interactive", {"header": header, **_buttons(file.name, post.buttons)})
    return _message(post, kind, {**content, "caption": _append_choices("", post.buttons)})


def read_receipt(message_id: str) -> Content:
    """Return a read receipt that also shows the typing indicator."""
    return {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": message_id,
        "typing_indicator": {"type": "text"},
    }


def _message(post: Post, kind: str, content: Content) -> Content:
    message: Content = {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to" if NUMBER.fullmatch(post.target.chat_id) else "recipient": post.target.chat_id,
        "type": kind,
        kind: content,
    }
    if post.reply_to is not None and post.reply_to.startswith("wamid."):
        message["context"] = {"message_id": post.reply_to}
    return message


def _file_kind(file: File) -> FileKind:
    if file.media_type in _IMAGES and file.size_bytes <= _IMAGE_BYTES:
        return "image"
    if file.media_type in _VIDEOS:
        return "video"
    if file.media_type in _SOUNDS and (file.media_type != "audio/ogg" or file.is_voice_note):
        return "audio"
    return "document"


def _fits_buttons(text: str, choices: Sequence[Button]) -> bool:
    labels = [button.label for button in choices]
    return (
        len(labels) <= _BUTTONS
        and utf16(text) <= _BUTTON_TEXT_CHARS
        and all(utf16(label) <= _BUTTON_CHARS for label in labels)
        and len(set(labels)) == len(labels)
    )


def _buttons(text: str, choices: Iterable[Button]) -> Content:
    buttons = [{"type": "reply", "reply": {"id": one.says, "title": one.label}} for one in choices]
    return {"type": "button", "body": {"text": text}, "action": {"buttons": buttons}}


def _list_row(button: Button) -> Content:
    if utf16(button.label) <= _ROW_CHARS:
        return {"id": button.says, "title": button.label}
    shown = _shorten(button.label, _ROW_CHARS)
    return {"id": button.says, "title": shown, "description": _shorten(button.label, _ROW_ABOUT_CHARS)}


def _shorten(text: str, chars: int) -> str:
    if utf16(text) <= chars:
        return text
    while utf16(text) >= chars:
        text = text[:-1]
    return f"{text}…"


def _append_choices(text: str, buttons: Iterable[Button]) -> str:
    return "\n".join([text, "", *(f"- {button.says}" for button in buttons)]).strip()
