"""A post as Feishu's calls want it: a card, or a text where a card was refused (open.feishu.cn/document, "Card JSON
2.0 structure", "Send message content"). Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from gateway.channels.feishu.parse import CHAT, GROUP, SAYS, THREAD
from gateway.channels.feishu.render import nameless
from gateway.delivery.line_posts import GROUP as IN_GROUP
from gateway.platform.protocol import Button, File, Post, PostTarget

IMAGE_BYTES: Final = 10 * 1024 * 1024
FILE_BYTES: Final = 30 * 1024 * 1024
"""Feishu takes no empty file, and none that is larger."""

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


class Content(msgspec.Struct, frozen=True):
    """`content` is JSON inside of JSON."""

    msg_type: str
    content: str


def uuid(key: str) -> str:
    """A post's key, in the fifty characters that there are for it."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def shown(post: Post) -> Content:
    """A piece of text: a card, which can be changed later; as plain text a message of text, which
    every chat takes."""
    return text(post) if post.as_plain else card(post)


def card(post: Post) -> Content:
    """With the piece in it, and its buttons below. As plain text it has no markup that could be
    refused."""
    plain = post.piece.plain if post.piece is not None else ""
    words: dict[str, Any] = {"tag": "markdown", "content": post.text}
    if post.as_plain:
        words = {"tag": "div", "text": {"tag": "plain_text", "content": post.text}}
    return _card([words] if post.text else [], plain, post)


def text(post: Post) -> Content:
    """The plain text, with the words of its buttons."""
    plain = post.piece.plain if post.piece is not None else ""
    lines = [plain, "", *(f"- {nameless(button.says)}" for button in post.buttons)] if post.buttons else [plain]
    return Content("text", _json({"text": "\n".join(lines)}))


def below_a_file(post: Post) -> Content:
    """The buttons of a file: messages of files have none."""
    return _card([], post.file.name if post.file is not None else "", post)


def not_sent(file: File) -> Content:
    """What is said instead of a file that Feishu does not take."""
    why = "it is empty" if not file.data else f"it has more than {FILE_BYTES // 1024 // 1024} MB"
    return Content("text", _json({"text": nameless(f"[file: {file.name}; {why}]")}))


def can_go(file: File) -> bool:
    """Whether Feishu takes a file of this size."""
    return 0 < len(file.data) <= FILE_BYTES


def is_image(file: File) -> bool:
    """Whether it can be shown as one."""
    return file.media_type in _IMAGES and len(file.data) <= IMAGE_BYTES


def image(key: str) -> Content:
    """An image that was uploaded."""
    return Content("image", _json({"image_key": key}))


def file_type(file: File) -> str:
    """The type under which it is uploaded, which decides what it can be sent as."""
    if file.media_type == "audio/ogg" and b"OpusHead" in file.data[:64]:
        return "opus"
    return "mp4" if file.media_type == "video/mp4" else _TYPES.get(file.media_type, "stream")


def attached(kind: str, key: str) -> Content:
    """A file that was uploaded under this type."""
    return Content({"opus": "audio", "mp4": "media"}.get(kind, "file"), _json({"file_key": key}))


def _card(elements: list[dict[str, Any]], preview: str, post: Post) -> Content:
    if post.buttons:
        elements = [*elements, {"tag": "column_set", "flex_mode": "flow", "columns": _columns(post)}]
    return Content(
        "interactive",
        _json(
            {
                "schema": "2.0",
                "config": {
                    "update_multi": True,
                    "width_mode": "fill",
                    "enable_forward_interaction": False,  # a card that was passed on asks somebody else
                    "summary": {"content": _line(preview)},
                },
                "body": {"elements": elements},
            }
        ),
    )


def _columns(post: Post) -> list[dict[str, Any]]:
    return [{"tag": "column", "width": "auto", "elements": [_button(button, post.target)]} for button in post.buttons]


def _button(button: Button, place: PostTarget) -> dict[str, Any]:
    """Behind it stands where it was posted: a press does not tell the topic, nor what kind of chat
    it is."""
    value = {
        SAYS: button.says,
        CHAT: place.chat_id,
        THREAD: place.thread or "",
        GROUP: place.notes.get(IN_GROUP, ""),
    }
    return {
        "tag": "button",
        "text": {"tag": "plain_text", "content": button.label[:_LABEL_CHARS]},
        "behaviors": [{"type": "callback", "value": value}],
    }


def _line(preview: str) -> str:
    """What the list of chats shows."""
    line = " ".join(preview.split())
    return line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"


def _json(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode()
