"""Build the arguments of Slack's calls for a post, and recognise a post again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.channels.slack.parse import BUTTONS
from gateway.channels.slack.render import escape_mrkdwn
from gateway.platform.protocol import File, Post

EVENT: Final = "shoal"  # event type of the metadata by which a post is found again
_LABEL_CHARS: Final = 75


def post_mark(key: str) -> str:
    """Return a hash of a post's key: other apps of the workspace can read the metadata."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def has_mark(message: Mapping[str, Any], key: str) -> bool:
    """Return whether a message of a channel's history is the post with this key."""
    mark, carried = post_mark(key), message.get("metadata") or {}
    if carried.get("event_type") == EVENT and (carried.get("event_payload") or {}).get("key") == mark:
        return True
    return any(block.get("block_id") == mark for block in message.get("blocks") or ())


def post_form(post: Post) -> dict[str, Any]:
    """Return the arguments that a new message and an edit share. Buttons are an attachment, for
    top-level blocks would replace the text; those that Slack refused are listed as text."""
    text, attachments = post.text, list[dict[str, Any]]()
    if post.buttons and post.as_plain:
        text = "\n".join([text, "", *(f"- {escape_mrkdwn(button.says)}" for button in post.buttons)])
    elif post.buttons:
        fallback = ", ".join(button.label for button in post.buttons)
        attachments = [{"fallback": fallback, "blocks": [_button_row(post)]}]
    return {
        "channel": post.target.chat_id,
        "text": text,
        "attachments": attachments,
        "metadata": {"event_type": EVENT, "event_payload": {"key": post_mark(post.key)}},
    }


def file_blocks(post: Post, file: File) -> list[dict[str, Any]]:
    """Return the blocks of a file. The block id is the mark: its message cannot carry metadata."""
    lines = [file.name, *(f"- {button.says}" for button in post.buttons if post.as_plain)]
    text = {"type": "plain_text", "text": "\n".join(lines), "emoji": False}
    section = {"type": "section", "block_id": post_mark(post.key), "text": text}
    return [section] if post.as_plain or not post.buttons else [section, _button_row(post)]


def _button_row(post: Post) -> dict[str, Any]:
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
            for number, button in enumerate(post.buttons)
        ],
    }
