"""A post as Slack's calls want it, and how it is known again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.channels.slack.parse import BUTTONS
from gateway.channels.slack.render import escaped
from gateway.platform.protocol import Button, Post

EVENT: Final = "shoal"
"""The type of the metadata by which a post is found again."""

_LABEL_CHARS: Final = 75


def mark(key: str) -> str:
    """A post's key as other apps of the workspace may see it."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def metadata(key: str) -> dict[str, Any]:
    """What a message carries beside what is shown."""
    return {"event_type": EVENT, "event_payload": {"key": mark(key)}}


def is_marked(message: Mapping[str, Any], key: str) -> bool:
    """Whether a message of a channel's history is the post of this key."""
    carried = message.get("metadata") or {}
    if carried.get("event_type") == EVENT and (carried.get("event_payload") or {}).get("key") == mark(key):
        return True
    return any(block.get("block_id") == mark(key) for block in message.get("blocks") or ())


def text(post: Post) -> str:
    """Its text. Buttons that Slack did not take are words."""
    if post.as_plain and post.buttons:
        return "\n".join([post.text, "", *(f"- {escaped(button.says)}" for button in post.buttons)])
    return post.text


def attachments(post: Post) -> Sequence[dict[str, Any]]:
    """Buttons stand beside the text: as blocks they would take its place."""
    if post.as_plain or not post.buttons:
        return []
    return [{"fallback": ", ".join(button.label for button in post.buttons), "blocks": [_row(post.buttons)]}]


def file_blocks(post: Post) -> list[dict[str, Any]]:
    """The text beside a file. Its block is what it is known by: the message of a file has no
    metadata."""
    assert post.file is not None
    words = [post.file.name, *(f"- {button.says}" for button in post.buttons if post.as_plain)]
    shown: dict[str, Any] = {
        "type": "section",
        "block_id": mark(post.key),
        "text": {"type": "plain_text", "text": "\n".join(words), "emoji": False},
    }
    return [shown] if post.as_plain or not post.buttons else [shown, _row(post.buttons)]


def _row(buttons: Sequence[Button]) -> dict[str, Any]:
    return {
        "type": "actions",
        "block_id": BUTTONS,
        "elements": [
            {
                "type": "button",
                "action_id": f"{BUTTONS}{number}",
                "text": {"type": "plain_text", "text": button.label[:_LABEL_CHARS], "emoji": False},
                "value": button.says,
            }
            for number, button in enumerate(buttons)
        ],
    }
