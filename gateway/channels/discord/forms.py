"""Convert posts into the JSON bodies of Discord's HTTP API. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from gateway.platform.protocol import Button, Post, PostTarget

CUSTOM_ID_CHARS: Final = 100
LABEL_CHARS: Final = 80

_NO_EMBEDS: Final = 1 << 2
_BUTTON, _ROW, _GREY = 2, 1, 2
_IN_ROW: Final = 5


def target_channel(place: PostTarget) -> str:
    """Return the channel to post to: a thread is a channel of its own."""
    return place.thread or place.chat_id


def new_message_form(post: Post) -> dict[str, Any]:
    """Return the body of a new message. The nonce makes Discord show a repeated post only once, for
    some minutes."""
    form = {**_message_form(post), "nonce": nonce(post.key), "enforce_nonce": True}
    if (answered := _replied_message_id(post)) is not None:
        form["message_reference"] = {"message_id": answered, "fail_if_not_exists": False}
    if post.file is not None:
        form["attachments"] = [{"id": 0, "filename": post.file.name}]
    return form


def edit_form(post: Post) -> dict[str, Any]:
    """Return the body of an edit; without buttons it removes existing ones."""
    return {"components": [], **_message_form(post)}


def nonce(key: str) -> str:
    """Return the post's key in the at most 25 characters of a nonce."""
    return hashlib.blake2s(key.encode(), digest_size=12).hexdigest()


def _message_form(post: Post) -> dict[str, Any]:
    form: dict[str, Any] = {"content": post.text, "allowed_mentions": {"parse": []}, "flags": _NO_EMBEDS}
    if post.buttons:
        form["components"] = _button_rows(post.buttons)
    return form


def _replied_message_id(post: Post) -> str | None:
    """Return the message that a post replies to, without an edit's time; None for a press."""
    id = (post.reply_to or "").partition("/")[0]
    return id if id.isdecimal() else None


def _button_rows(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    made = []
    for number, button in enumerate(buttons):
        custom_id = f"{number}:{button.says}"
        if len(custom_id) > CUSTOM_ID_CHARS:
            # Too long: the press is resolved by the button's label instead (`parse.py`).
            custom_id = f"{number}:"
        label = button.label if len(button.label) <= LABEL_CHARS else button.label[: LABEL_CHARS - 1] + "…"
        made.append({"type": _BUTTON, "style": _GREY, "label": label, "custom_id": custom_id})
    rows = [made[at : at + _IN_ROW] for at in range(0, len(made), _IN_ROW)]
    return [{"type": _ROW, "components": row} for row in rows]
