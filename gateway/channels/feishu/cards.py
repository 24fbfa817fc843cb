"""Build message contents for a post: a card, or a text if the card was refused
(open.feishu.cn/document, "Card JSON 2.0 structure", "Send message content"). Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from gateway.channels.feishu.parse import CHAT, GROUP, SAYS, THREAD
from gateway.channels.feishu.render import defuse_mentions
from gateway.platform.protocol import GROUP_NOTE, Button, File, Post, PostTarget

IMAGE_BYTES: Final = 10 * 1024 * 1024
FILE_BYTES: Final = 30 * 1024 * 1024
"""Feishu accepts no empty file, and none that is larger."""

_LABEL_CHARS: Final = 60
_SUMMARY_CHARS: Final = 100
_IMAGES: Final = frozenset(f"image/{kind}" for kind in ("jpeg", "png", "webp", "gif", "tiff", "bmp"))
_TYPES: Final = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "ppt",
}


class MessageContent(msgspec.Struct, frozen=True):
    """A message; `content` is JSON inside JSON."""

    msg_type: str
    content: str


def post_uuid(key: str) -> str:
    """Return the post's key in the fifty characters allowed for it."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def text_or_card(post: Post) -> MessageContent:
    """Return a card, which can be edited later; as plain text a text message, which every chat
    accepts."""
    return text_content(post) if post.as_plain else card_content(post)


def card_content(post: Post) -> MessageContent:
    """Return a card with the text and its buttons below. As plain text it has no markup that could
    be refused."""
    plain = post.piece.plain if post.piece is not None else ""
    words: dict[str, Any] = {"tag": "markdown", "content": post.text}
    if post.as_plain:
        words = {"tag": "div", "text": {"tag": "plain_text", "content": post.text}}
    return _build_card([words] if post.text else [], plain, post)


def text_content(post: Post) -> MessageContent:
    """Return the plain text, with the buttons as text."""
    plain = post.piece.plain if post.piece is not None else ""
    lines = [plain, "", *(f"- {defuse_mentions(button.says)}" for button in post.buttons)] if post.buttons else [plain]
    return MessageContent("text", _json({"text": "\n".join(lines)}))


def file_buttons(post: Post) -> MessageContent:
    """Return a card with the buttons of a file: file messages have none."""
    return _build_card([], post.file.name if post.file is not None else "", post)


def unsupported_note(file: File) -> MessageContent:
    """Return the text posted in place of a file that Feishu does not accept."""
    why = "it is empty" if not file.data else f"it has more than {FILE_BYTES // 1024 // 1024} MB"
    return MessageContent("text", _json({"text": defuse_mentions(f"[file: {file.name}; {why}]")}))


def is_supported(file: File) -> bool:
    """Return whether Feishu accepts a file of this size."""
    return 0 < len(file.data) <= FILE_BYTES


def is_image(file: File) -> bool:
    """Return whether it can be shown as an image."""
    return file.media_type in _IMAGES and len(file.data) <= IMAGE_BYTES


def image_content(key: str) -> MessageContent:
    """Return an uploaded image."""
    return MessageContent("image", _json({"image_key": key}))


def file_type(file: File) -> str:
    """Return the type for the upload, which decides how it can be sent."""
    if file.media_type == "audio/ogg" and b"OpusHead" in file.data[:64]:
        return "opus"
    return "mp4" if file.media_type == "video/mp4" else _TYPES.get(file.media_type, "stream")


def file_content(kind: str, key: str) -> MessageContent:
    """Return a file that was uploaded under this type."""
    return MessageContent({"opus": "audio", "mp4": "media"}.get(kind, "file"), _json({"file_key": key}))


def _build_card(elements: list[dict[str, Any]], preview: str, post: Post) -> MessageContent:
    if post.buttons:
        elements = [*elements, {"tag": "column_set", "flex_mode": "flow", "columns": _columns(post)}]
    return MessageContent(
        "interactive",
        _json(
            {
                "schema": "2.0",
                "config": {
                    "update_multi": True,
                    "width_mode": "fill",
                    "enable_forward_interaction": False,  # a card that was passed on asks somebody else
                    "summary": {"content": _summary_line(preview)},
                },
                "body": {"elements": elements},
            }
        ),
    )


def _columns(post: Post) -> list[dict[str, Any]]:
    return [{"tag": "column", "width": "auto", "elements": [_button(button, post.target)]} for button in post.buttons]


def _button(button: Button, place: PostTarget) -> dict[str, Any]:
    """Return a button. It carries where it was posted: a press event tells neither the topic nor
    the kind of chat."""
    value = {
        SAYS: button.says,
        CHAT: place.chat_id,
        THREAD: place.thread or "",
        GROUP: place.notes.get(GROUP_NOTE, ""),
    }
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": button.label[:_LABEL_CHARS]},
        "behaviors": [{"type": "callback", "value": value}],
    }


def _summary_line(preview: str) -> str:
    """Return the preview for the list of chats."""
    line = " ".join(preview.split())
    return line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"


def _json(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode()
