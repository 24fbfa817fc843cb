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
_IMAGES: Final = {f"image/{kind}" for kind in ("jpeg", "png", "webp", "gif", "tiff", "bmp")}
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


def card_content(post: Post) -> MessageContent:
    """Return a card, which can be edited later, with buttons; as plain text it has no markup."""
    preview = post.piece.plain if post.piece is not None else ""
    if post.file is not None:  # the card is for the buttons below it: file messages have none
        preview = post.file.name
    words: dict[str, Any] = {"tag": "markdown", "content": post.text}
    if post.as_plain:
        words = {"tag": "div", "text": {"tag": "plain_text", "content": post.text}}
    elements = [words] if post.text else []
    if post.buttons:
        buttons = [_button(button, post.target) for button in post.buttons]
        columns = [{"tag": "column", "width": "auto", "elements": [button]} for button in buttons]
        elements.append({"tag": "column_set", "flex_mode": "flow", "columns": columns})
    line = " ".join(preview.split())  # shown in the list of chats
    summary = line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"
    config = {
        "update_multi": True,
        "width_mode": "fill",
        "enable_forward_interaction": False,  # a card that was passed on asks somebody else
        "summary": {"content": summary},
    }
    card = {"schema": "2.0", "config": config, "body": {"elements": elements}}
    return MessageContent("interactive", _json(card))


def text_content(post: Post) -> MessageContent:
    """Return the plain text, with the buttons as text: every chat accepts it."""
    plain = post.piece.plain if post.piece is not None else ""
    lines = [f"- {defuse_mentions(button.says)}" for button in post.buttons]
    lines = [plain, "", *lines] if lines else [plain]
    return MessageContent("text", _json({"text": "\n".join(lines)}))


def unsupported_note(file: File) -> MessageContent:
    """Return the text posted in place of a file that Feishu does not accept."""
    why = "it is empty" if not file.data else f"it has more than {FILE_BYTES // 1024 // 1024} MB"
    return MessageContent("text", _json({"text": defuse_mentions(f"[file: {file.name}; {why}]")}))


def is_image(file: File) -> bool:
    """Return whether it can be shown as an image."""
    return file.media_type in _IMAGES and len(file.data) <= IMAGE_BYTES


def file_type(file: File) -> str:
    """Return the type for the upload, which decides how it can be sent."""
    if file.is_voice_note:
        return "opus"
    return "mp4" if file.media_type == "video/mp4" else _TYPES.get(file.media_type, "stream")


def key_content(kind: str, key: str) -> MessageContent:
    """Return an image, or a file of this type, that was uploaded."""
    if kind == "image":
        return MessageContent("image", _json({"image_key": key}))
    msg_type = {"opus": "audio", "mp4": "media"}.get(kind, "file")
    return MessageContent(msg_type, _json({"file_key": key}))


def _button(button: Button, place: PostTarget) -> dict[str, Any]:
    """Return a button with the place of its card: a press tells neither topic nor kind of chat."""
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


def _json(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode()
