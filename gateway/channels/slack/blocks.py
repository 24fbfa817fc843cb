"""Read Slack's blocks as the text of a message, with its references and entities
(docs.slack.dev/reference/block-kit/blocks). Pure; total: a block of any form gives some text or
none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.text.fields import dicts_at, dicts_in, text_at
from gateway.text.quotes import lines_of

DEEPEST: Final = 8
"""Elements within elements that are read."""

Block = Mapping[str, Any]


def block_texts(blocks: object) -> list[str]:
    """Return the text of each block that has one."""
    return list(filter(None, (_block_text(one).strip() for one in dicts_in(blocks))))


def _block_text(block: Block) -> str:
    match block.get("type"):
        case "rich_text":
            return "\n".join(_rich_text(one) for one in dicts_at(block, "elements"))
        case "table":
            return _table_text(block)
        case "actions":
            return ""  # labels of buttons
        case _:
            own = (_text_object(block.get(key)) for key in ("title", "label", "text", "description"))
            inner = (_text_object(one) for key in ("fields", "elements") for one in dicts_at(block, key))
            return lines_of(*own, *inner, _escape(text_at(block, "alt_text")))


def _text_object(value: object) -> str:
    """Return a text, a text object, or the description of a picture."""
    if isinstance(value, str):
        return value
    if text_at(value, "type") == "rich_text" and isinstance(value, Mapping):
        return _block_text(value)
    text = text_at(value, "text") or text_at(value, "alt_text")
    return text if text_at(value, "type") == "mrkdwn" else _escape(text)


def _table_text(block: Block) -> str:
    rows = block.get("rows")
    rows = rows if isinstance(rows, list) else []
    return "\n".join(" | ".join(_text_object(cell).strip() for cell in dicts_in(row)) for row in rows)


def _rich_text(part: Block, depth: int = 0) -> str:
    """Return the text of a section, a list, a quote or code; or of one of their elements."""
    kind = text_at(part, "type")
    if kind in _ELEMENTS:
        return _ELEMENTS[kind](part)
    inner = [_rich_text(one, depth + 1) for one in dicts_at(part, "elements")] if depth < DEEPEST else []
    match kind:
        case "rich_text_list":
            return "\n".join(f"- {one}" for one in inner)
        case "rich_text_quote":
            return "\n".join(f"&gt; {line}" for line in "".join(inner).split("\n"))
        case "rich_text_preformatted":
            return f"```\n{''.join(inner)}\n```"
        case _:
            return "".join(inner) or _escape(text_at(part, "text"))


def _link(part: Block) -> str:
    url = text_at(part, "url")
    text = _escape(text_at(part, "text"))
    return f"<{url}|{text}>" if text and text != url else f"<{url}>"


_ELEMENTS: Final[Mapping[str, Callable[[Block], str]]] = {
    "link": _link,
    "user": lambda part: f"<@{text_at(part, 'user_id')}>",
    "usergroup": lambda part: f"<!subteam^{text_at(part, 'usergroup_id')}>",
    "channel": lambda part: f"<#{text_at(part, 'channel_id')}>",
    "broadcast": lambda part: f"<!{text_at(part, 'range')}>",
    "emoji": lambda part: f":{text_at(part, 'name')}:",
    "date": lambda part: _escape(text_at(part, "fallback")),
    "color": lambda part: _escape(text_at(part, "value")),
}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
