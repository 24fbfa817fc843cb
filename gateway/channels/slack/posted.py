"""Build the arguments of Slack's calls for a post, and recognise a post again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.channels.slack.parse import BUTTONS
from gateway.channels.slack.render import escape_mrkdwn
from gateway.platform.protocol import Button, Post

EVENT: Final = "shoal"
"""Event type of the metadata by which a post is found again."""

_LABEL_CHARS: Final = 75


def post_mark(key: str) -> str:
    """Return a hash of a post's key: other apps of the workspace can read the metadata."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def post_metadata(key: str) -> dict[str, Any]:
    """Return the invisible metadata of a message."""
    return {"event_type": EVENT, "event_payload": {"key": post_mark(key)}}


def has_mark(message: Mapping[str, Any], key: str) -> bool:
    """Return whether a message of a channel's history is the post with this key."""
    carried = message.get("metadata") or {}
    if carried.get("event_type") == EVENT and (carried.get("event_payload") or {}).get("key") == post_mark(key):
        return True
    return any(block.get("block_id") == post_mark(key) for block in message.get("blocks") or ())


def post_text(post: Post) -> str:
    """Return the text. Buttons that Slack refused are listed as text."""
    if post.as_plain and post.buttons:
        return "\n".join([post.text, "", *(f"- {escape_mrkdwn(button.says)}" for button in post.buttons)])
    return post.text


def post_attachments(post: Post) -> Sequence[dict[str, Any]]:
    """Return the buttons as an attachment: top-level blocks would replace the text."""
    if post.as_plain or not post.buttons:
        return []
    return [{"fallback": ", ".join(button.label for button in post.buttons), "blocks": [_button_row(post.buttons)]}]


def file_blocks(post: Post) -> list[dict[str, Any]]:
    """Return the blocks shown with a file. The block id is the mark: a file's message cannot carry
    metadata."""
    assert post.file is not None
    lines = [post.file.name, *(f"- {button.says}" for button in post.buttons if post.as_plain)]
    section: dict[str, Any] = {
        "type": "section",
        "block_id": post_mark(post.key),
        "text": {"type": "plain_text", "text": "\n".join(lines), "emoji": False},
    }
    return [section] if post.as_plain or not post.buttons else [section, _button_row(post.buttons)]


def _button_row(buttons: Sequence[Button]) -> dict[str, Any]:
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
