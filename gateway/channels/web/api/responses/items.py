"""Items of a response's input, read as messages of a conversation, and as they are shown again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.channels.web.api.errors import bad_parameter
from gateway.channels.web.api.request import MESSAGES_LIMIT

RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{32})")
ITEM_ID: Final = re.compile(r"(?:msg|fc)_([0-9a-f]{32})_(?:in)?\d+")
INPUT_LIMIT_BYTES: Final = 64 * 1024
"""Most bytes of input that are stored to be listed; what is over it is cut."""

TEXTS: Final = ("input_text", "output_text", "text", "refusal")
_DROPPED: Final = ("reasoning", "item_reference")
_CALLS: Final = ("function_call", "custom_tool_call")
_RESULTS: Final = ("function_call_output", "custom_tool_call_output")
_PLACE: Final = re.compile(r"messages\[(\d+)\](\.content)?")

Message = dict[str, Any]


def read_items(raw: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the input as items. Raises ApiError if there are too many."""
    if isinstance(raw, str):
        return [{"type": "message", "role": "user", "content": raw}]
    if len(raw) > MESSAGES_LIMIT:
        raise bad_parameter("input", f"there are {len(raw):,} items; at most {MESSAGES_LIMIT:,} are taken")
    return list(raw)


def referenced(items: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the response whose items are referred to last, and the place after that reference.
    Clients that have stored responses send references in place of what they have seen. Raises
    ApiError for a reference to anything else: it would be missing from the conversation."""
    found = ""
    after = 0
    for at, item in enumerate(items):
        if item.get("type") == "item_reference":
            known = ITEM_ID.fullmatch(str(item.get("id")))
            if known is None:
                message = f"input[{at}].id is not an item of a stored response; send the item itself"
                raise bad_parameter(f"input[{at}].id", message, code="item_not_found")
            found = known[1]
            after = at + 1
    return found, after


def brings_results(items: Sequence[Mapping[str, Any]], first: int) -> bool:
    """Tell whether the items from place `first` on are results of functions. Raises ApiError for a
    message with them: the turn that waits for them takes none."""
    new = [(at, item.get("type", "message")) for at, item in enumerate(items) if at >= first]
    if not any(kind in _RESULTS for _, kind in new):
        return False
    for at, kind in new:
        if kind == "message":
            message = f"input[{at}] is a message among results of functions: send it when they are answered"
            raise bad_parameter(f"input[{at}]", message, code="unsupported_item")
    return True


def as_messages(items: Sequence[Mapping[str, Any]], first: int = 0) -> tuple[list[Message], list[int]]:
    """Return the items from place `first` on as messages of a chat, and the place of each.
    Raises ApiError for an item that a conversation cannot have."""
    messages: list[Message] = []
    places: list[int] = []
    for at, item in enumerate(items[first:], first):
        if item.get("type") not in _DROPPED:
            messages.append(_as_message(item, f"input[{at}]"))
            places.append(at)
    return messages, places


def _as_message(item: Mapping[str, Any], where: str) -> Message:
    kind = item.get("type", "message")
    if kind == "message":
        return {"role": item.get("role"), "content": _as_parts(item.get("content"), where)}
    if kind in _CALLS:
        function = {"name": item.get("name"), "arguments": item.get("arguments", item.get("input"))}
        return {"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "function": function}]}
    if kind in _RESULTS:
        content = _as_parts(item.get("output"), f"{where}.output")
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    message = f"{where} must be a message, a function_call or a function_call_output, not {str(kind)[:40]!r}"
    raise bad_parameter(where, message, code="unsupported_item")


def _as_parts(content: object, where: str) -> object:
    if not isinstance(content, list):
        return content
    return [_as_part(part, f"{where}.content[{at}]") for at, part in enumerate(content)]


def _as_part(part: object, where: str) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict):
        return part
    if kind in TEXTS:
        return {"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")}
    if kind == "input_image":
        _check_source(part, where, "image_url")
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    if kind == "input_file":
        _check_source(part, where, "file_data")
        return {"type": "file", "file": {"file_data": part.get("file_data"), "filename": part.get("filename")}}
    return {"type": str(kind)}


def _check_source(part: Mapping[str, Any], where: str, needed: str) -> None:
    for name in ("file_id", "file_url"):
        if part.get(name) and not part.get(needed):
            raise bad_parameter(
                f"{where}.{name}",
                f"{where}.{name} cannot be taken: no files are kept or fetched here; send {needed!r}, "
                "a data: URL in base64",
            )


def place_in_input(text: str, places: Sequence[int]) -> str:
    """Return a place in messages, or an error that names one, as of the items that they were read
    from."""

    def placed(found: re.Match[str]) -> str:
        at = int(found[1])
        return f"input[{places[at] if at < len(places) else at}]{found[2] or ''}"

    text = _PLACE.sub(placed, text)
    return text.replace(".image_url.url", ".image_url").replace(".file.file_data", ".file_data")


def shown_items(items: Sequence[Mapping[str, Any]], limit_bytes: int = INPUT_LIMIT_BYTES) -> list[dict[str, Any]]:
    """Return the items as they are listed: files only by name, and only the newest within the
    limit."""
    shown: list[dict[str, Any]] = []
    left = limit_bytes
    for item in reversed(items):
        if item.get("type") in _DROPPED:
            continue
        one = _shown(item)
        left -= len(repr(one).encode())
        if left < 0:
            break
        shown.append(one)
    return shown[::-1]


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type", "message")
    if kind in _CALLS:
        return _texts_of(item, kind, ("call_id", "name", "arguments" if kind == "function_call" else "input"))
    content = item.get("output") if kind in _RESULTS else item.get("content")
    answers = item.get("role") == "assistant"
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else _shown_part(part) for part in parts]
    if kind in _RESULTS:
        return _texts_of(item, kind, ("call_id",)) | {"output": "\n".join(texts)}
    own: dict[str, Any] = {"annotations": [], "logprobs": []} if answers else {}
    form = "output_text" if answers else "input_text"
    return {
        "type": "message",
        "role": item.get("role"),
        "status": "completed",
        "content": [{"type": form, "text": text, **own} for text in texts],
    }


def _texts_of(item: Mapping[str, Any], kind: str, names: Sequence[str]) -> dict[str, Any]:
    texts = {name: value if isinstance(value := item.get(name), str) else "" for name in names}
    return {"type": kind, "status": "completed", **texts}


def _shown_part(part: Mapping[str, Any]) -> str:
    match part.get("type"):
        case "input_image":
            return "[picture]"
        case "input_file":
            name = part.get("filename")
            return f"[file: {name[:80]}]" if isinstance(name, str) else "[file]"
        case _:
            return str(part.get("text", part.get("refusal", "")))
