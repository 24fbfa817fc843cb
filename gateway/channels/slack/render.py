"""Render replies as Slack mrkdwn, build the arguments of calls for a post, and recognise one. Pure.

We use `text` rather than `markdown_text` or blocks: both calls accept it, it cannot mention anyone
once `&`, `<` and `>` are escaped, and conversations.history returns exactly what was posted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.channels.slack.parse import BUTTONS
from gateway.platform.protocol import File, Piece, Post
from gateway.text.characters import utf16
from gateway.text.layout import Dress, quoted_lines
from gateway.text.leaves import Link
from gateway.text.marks import JOINT, Pen, break_marks, fenced
from gateway.text.pages import PageFormat, both, render

EVENT: Final = "shoal"  # event type of the metadata by which a post is found again
TEXT_LIMIT: Final = 3500  # UTF-16 code units, escaped; chat.update accepts 4000
_LABEL_CHARS: Final = 75
_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_WOULD_QUOTE: Final = re.compile(r"^(?=&gt;)", re.MULTILINE)


def render_reply(markdown: str) -> list[Piece]:
    """Render a reply as mrkdwn. The plain text is escaped too: Slack reads `<!channel>` in every
    message. Post it with `unfurl_links` and `unfurl_media` off, or Slack fetches the links."""
    return render(markdown, _PAGE)


def escape_mrkdwn(text: str) -> str:
    """Escape a text so that it mentions nobody and links nowhere."""
    return text.translate(_ESCAPES)


def _escape_text(text: str) -> str:
    return _WOULD_QUOTE.sub(JOINT, break_marks(escape_mrkdwn(text)))


def _inline_code(text: str) -> str:
    return _escape_text(text) if "`" in text else f"`{escape_mrkdwn(text)}`"


def _write_link(link: Link, label: str) -> tuple[str, str]:
    shown = "" if label == link.address else "|" + escape_mrkdwn(label).replace("|", "¦")
    return f"<{escape_mrkdwn(link.address)}{shown}>", escape_mrkdwn(link.host_behind)


_PEN: Final = Pen(
    marks={"bold": "*", "italic": "_", "strike": "~"},
    text=_escape_text,
    code=_inline_code,
    block=lambda leaf: fenced(escape_mrkdwn(leaf.text)),
    link=_write_link,
)
_DRESS: Final = Dress(body=_PEN.write_leaf, quote=quoted_lines("&gt;"))
_PAGE: Final = PageFormat(write=_DRESS.lay_out, guard=escape_mrkdwn, size=both(utf16), limits=(TEXT_LIMIT, TEXT_LIMIT))


def post_mark(key: str) -> str:
    """Return a hash of a post's key: other apps of the workspace can read the metadata."""
    return hashlib.blake2s(key.encode(), digest_size=16).hexdigest()


def has_mark(message: Mapping[str, Any], key: str) -> bool:
    """Return whether a message of a channel's history is the post with this key."""
    mark = post_mark(key)
    carried = message.get("metadata") or {}
    if carried.get("event_type") == EVENT and (carried.get("event_payload") or {}).get("key") == mark:
        return True
    return any(block.get("block_id") == mark for block in message.get("blocks") or ())


def post_form(post: Post) -> dict[str, Any]:
    """Return the arguments that a new message and an edit share. Buttons are an attachment, for
    top-level blocks would replace the text; those that Slack refused are listed as text."""
    text = post.text
    attachments = list[dict[str, Any]]()
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
