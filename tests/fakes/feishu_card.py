"""A card of Feishu's as people see it, and what of one Feishu refuses (card JSON 2.0)."""

from __future__ import annotations

import html
import json
import re
from typing import Any, Final

CARD_BYTES: Final = 30 * 1024
TEXT_BYTES: Final = 150 * 1024

_CONFIG: Final = {"update_multi", "width_mode", "enable_forward_interaction", "summary", "enable_forward"}
_KEYS: Final = {
    "markdown": {"content"},
    "div": {"text"},
    "column_set": {"flex_mode", "columns"},
    "column": {"width", "elements"},
    "button": {"text", "behaviors", "type"},
}
_MARKS: Final = re.compile(r"\*\*|\*|~~|`(?:``\w*\n?)?")
_LINK: Final = re.compile(r"\[([^\[\]]*)\]\([^()\s]+\)")


class Seen:
    """A message: its words, whether any has markup, its buttons as label and value, the key of its file."""

    def __init__(self) -> None:
        self.text = ""
        self.markup = False
        self.buttons: list[tuple[str, dict[str, Any]]] = []
        self.key: str | None = None


def seen(kind: str, content: str) -> Seen | tuple[int, str]:
    """What people see of it, or the number and the words with which it is refused."""
    if len(content.encode()) > (TEXT_BYTES if kind == "text" else CARD_BYTES):
        return 230025, "The length of the message content reaches its limit."
    try:
        body = json.loads(content)
    except ValueError:
        return 230001, "Your request contains an invalid request parameter, ext=content is not a string in json format."
    found = Seen()
    match kind:
        case "text":
            found.text = body["text"].replace("\u200b", "")
        case "interactive":
            if body.get("schema") != "2.0" or "body" not in body or not set(body["config"]) <= _CONFIG:
                return _card_error(200621, "parse card json err, please check whether the card json is correct")
            wrong = _add(found, body["body"]["elements"])
            if wrong is not None:
                return wrong
        case "image" | "file" | "audio" | "media":
            found.key = body.get("image_key" if kind == "image" else "file_key")
        case _:
            return 230001, "Your request contains an invalid request parameter, ext=invalid msg_type."
    return found


def _add(found: Seen, elements: list[dict[str, Any]]) -> tuple[int, str] | None:
    for one in elements:
        tag = one.get("tag", "")
        if set(one) - {"tag"} - _KEYS.get(tag, set()):
            return _card_error(200861, f"cards of schema V2 no longer support this capability; unsupported tag {tag}")
        match tag:
            case "markdown":
                if re.search(r"</?at\b", one["content"], re.IGNORECASE):
                    return _card_error(100290, "There is an invalid user resource(at/person) in your card")
                found.markup = (_MARKS.search(one["content"]) or _LINK.search(one["content"])) is not None
                bare = _MARKS.sub("", _LINK.sub(r"\1", one["content"]))
                found.text = html.unescape(bare).replace("\u200b", "")
            case "div":
                found.text = one["text"]["content"].replace("\u200b", "")
            case "button":
                [behavior] = one["behaviors"]
                if behavior["type"] != "callback" or not isinstance(behavior["value"], dict):
                    return _card_error(200621, "parse card json err")
                found.buttons.append((one["text"]["content"], behavior["value"]))
            case "column_set":
                for column in one["columns"]:
                    if (wrong := _add(found, column["elements"])) is not None:
                        return wrong
            case _:
                return _card_error(200861, f"unsupported tag {tag}")
    return None


def _card_error(code: int, msg: str) -> tuple[int, str]:
    return 230099, f"Failed to create card content, ext=ErrCode: {code}; ErrMsg: {msg}; ErrorValue: ; "
