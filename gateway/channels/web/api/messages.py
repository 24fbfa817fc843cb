"""The messages of a request: what is to be answered, what came before it, what was sent along."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.channels.web.api.errors import ApiError, bad_parameter
from shared.messages.transcript import AssistantEntry, UserEntry

MESSAGES_LIMIT: Final = 2000
HISTORY_LIMIT_BYTES: Final = 512 * 1024
"""What may come before the message: it travels with it."""

_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;[^,;]*)*;base64,", re.ASCII)
_SYSTEM: Final = ("system", "developer")
_UNUSED: Final = ("tool_calls", "function_call", "refusal", "audio")


class SentFile(msgspec.Struct, frozen=True):
    """A file that came in a request; `param` is where."""

    param: str
    name: str
    data: bytes


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The message to answer, its files, and the conversation before it, system texts among what
    users said."""

    text: str
    files: tuple[SentFile, ...] = ()
    history: tuple[UserEntry | AssistantEntry, ...] = ()


class _ParsedMessage(msgspec.Struct, frozen=True):
    """One message: its text, and the parts that are no text, with where they stand."""

    role: str
    text: str
    parts: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def entry(self) -> UserEntry | AssistantEntry:
        """As history has it: files are named there, as in every chat."""
        text = "\n".join([*filter(None, [self.text]), *(_mark(part) for _, part in self.parts)])
        if self.role == "assistant":
            return AssistantEntry(content=text, turn=0)
        return UserEntry(content=text, turn=0)


def read_messages(raw: Sequence[Mapping[str, Any]], *, with_history: bool) -> Prompt:
    """What was said last by the user; `with_history` also what was said before. Raises ApiError."""
    if len(raw) > MESSAGES_LIMIT:
        raise bad_parameter("messages", f"there are {len(raw):,} messages; at most {MESSAGES_LIMIT:,} are taken")
    parsed = [_parse_message(message, f"messages[{at}]") for at, message in enumerate(raw)]
    asked = next((at for at in range(len(parsed) - 1, -1, -1) if parsed[at].role not in _SYSTEM), -1)
    if asked < 0 or parsed[asked].role != "user":
        where = f"messages[{asked}].role" if asked >= 0 else "messages"
        raise bad_parameter(where, "the last message must be of the role 'user': it is the one that is answered")
    last = parsed[asked]
    files = tuple(_file(part, where, number) for number, (where, part) in enumerate(last.parts, 1))
    if not last.text.strip() and not files:
        raise bad_parameter(f"messages[{asked}].content", "the message has no text")
    before = [*parsed[:asked], *parsed[asked + 1 :]] if with_history else []
    if sum(len(one.text.encode()) for one in before) > HISTORY_LIMIT_BYTES:
        limit_kb = HISTORY_LIMIT_BYTES // 1024
        message = f"the messages before the last one have more than {limit_kb} kB; leave old ones out, or use a session"
        raise ApiError(413, message, code="too_big", param="messages")
    return Prompt(text=last.text, files=files, history=tuple(one.entry() for one in before))


def _parse_message(message: Mapping[str, Any], where: str) -> _ParsedMessage:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", *_SYSTEM):
        reason = "results of tools cannot be taken" if role in ("tool", "function") else "there is no such role"
        raise bad_parameter(f"{where}.role", f"{where}.role is {str(role)[:40]!r}: {reason}")
    for name in _UNUSED:
        if message.get(name):
            raise bad_parameter(
                f"{where}.{name}", f"{where}.{name} cannot be taken; send the text of the message alone"
            )
    if content is None and role == "assistant":
        return _ParsedMessage(role, "")
    if isinstance(content, str):
        return _ParsedMessage(role, content)
    if not isinstance(content, list):
        raise bad_parameter(
            f"{where}.content", f"{where}.content must be a text or a list of parts", code="invalid_type"
        )
    texts: list[str] = []
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for at, part in enumerate(content):
        here = f"{where}.content[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("image_url", "file") and role == "user" and isinstance(part.get(kind), dict):
            parts.append((here, part))
        else:
            raise bad_parameter(
                here, f"{here} must be a text, or of the user an image_url or a file, not {str(kind)[:40]!r}"
            )
    return _ParsedMessage(role, "\n".join(texts), tuple(parts))


def _mark(part: Mapping[str, Any]) -> str:
    if part["type"] == "image_url":
        return "[picture]"
    name = part["file"].get("filename")
    return f"[file: {name[:80]}]" if isinstance(name, str) else "[file]"


def _file(part: Mapping[str, Any], where: str, number: int) -> SentFile:
    if part["type"] == "image_url":
        where, url, name = f"{where}.image_url.url", part["image_url"].get("url"), f"picture-{number}"
    else:
        name = part["file"].get("filename")
        name = name if isinstance(name, str) else f"file-{number}"
        where, url = f"{where}.file.file_data", part["file"].get("file_data")
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if found is None or not isinstance(url, str):
        raise bad_parameter(where, f"{where} must be a data: URL in base64; nothing is fetched from elsewhere")
    try:
        return SentFile(where, name, b64decode(url[found.end() :], validate=True))
    except (binascii.Error, ValueError):
        raise bad_parameter(where, f"{where} is not base64") from None
