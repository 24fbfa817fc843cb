"""Posts in the forms that Discord's HTTP API takes. Pure."""

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


def channel_of(place: PostTarget) -> str:
    """Where to write: a thread is a channel of its own."""
    return place.thread or place.chat_id


def new_form(post: Post) -> dict[str, Any]:
    """A new message. The same post again is shown once, for some minutes."""
    form = {**_form(post), "nonce": nonce(post.key), "enforce_nonce": True}
    if (answered := _answered(post)) is not None:
        form["message_reference"] = {"message_id": answered, "fail_if_not_exists": False}
    if post.file is not None:
        form["attachments"] = [{"id": 0, "filename": post.file.name}]
    return form


def edit_form(post: Post) -> dict[str, Any]:
    """A message in the place of another one, with its buttons or none."""
    return {"components": [], **_form(post)}


def nonce(key: str) -> str:
    """The key of a post, as Discord takes one: 25 characters at most."""
    return hashlib.blake2s(key.encode(), digest_size=12).hexdigest()


def _form(post: Post) -> dict[str, Any]:
    form: dict[str, Any] = {"content": post.text, "allowed_mentions": {"parse": []}, "flags": _NO_EMBEDS}
    if post.buttons:
        form["components"] = _rows(post.buttons)
    return form


def _answered(post: Post) -> str | None:
    """The message that a post is an answer to: without the time of an edit; a press is none."""
    id = (post.reply_to or "").partition("/")[0]
    return id if id.isdecimal() else None


def _rows(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    made = []
    for number, button in enumerate(buttons):
        custom_id = f"{number}:{button.says}"
        if len(custom_id) > CUSTOM_ID_CHARS:
            custom_id = f"{number}:"
        label = button.label if len(button.label) <= LABEL_CHARS else button.label[: LABEL_CHARS - 1] + "…"
        made.append({"type": _BUTTON, "style": _GREY, "label": label, "custom_id": custom_id})
    rows = [made[at : at + _IN_ROW] for at in range(0, len(made), _IN_ROW)]
    return [{"type": _ROW, "components": row} for row in rows]
