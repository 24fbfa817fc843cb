"""Read the text and files of a message, by its type (open.feishu.cn/document, "Receive message
content"). Pure, and total: a content of any form gives some text or none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gateway.channels.feishu.wire import Mention
from gateway.platform.protocol import RemoteFile
from gateway.text.quotes import lines_of

FORWARDED: Final = "merge_forward"
OWN_WORDS: Final = frozenset(("text", "post", "image", "file", "audio", "media"))
"""Kinds of messages whose text their sender wrote. Cards, votes, events and places have words of
others, too."""

BOT_WORDS: Final = OWN_WORDS | {"interactive"}
"""Kinds of the bot's own messages. A card of a person is one that they passed on."""

_EVERYBODY: Final = "@_all"
_KEY: Final = re.compile(r"@_(?:user_[0-9]+|all)")
_TYPE: Final = re.compile(r"[a-z_]{1,40}")
_RESOURCE: Final = re.compile(r"[0-9A-Za-z_-]{1,200}")
_PLACEHOLDERS: Final = {
    "share_chat": "[group: {chat_id}]",
    "share_user": "[contact: {user_id}]",
    "location": "[location: {latitude}, {longitude} ({name})]",
    "folder": "[folder: {file_name}]",
    "share_calendar_event": "[event: {summary}]",
    "calendar": "[event: {summary}]",
    "general_calendar": "[event: {summary}]",
    "video_chat": "[call: {topic}]",
}


class ReadContent(msgspec.Struct, frozen=True):
    """Text as a person reads it, and files that are still available."""

    text: str = ""
    files: tuple[RemoteFile, ...] = ()


class MentionNames(msgspec.Struct, frozen=True):
    """The people mentioned in a message. `ours` are the keys that stand for us."""

    by_key: Mapping[str, str] = {}
    ours: frozenset[str] = frozenset()

    @staticmethod
    def of(mentions: Iterable[Mention], our_id: str) -> MentionNames:
        known = {one.key: one for one in mentions if one.key}
        return MentionNames(
            {key: " ".join((one.name or "somebody").split()) for key, one in known.items()},
            frozenset(key for key, one in known.items() if one.id and our_id == one.id.open_id != ""),
        )

    def replace_keys(self, text: str) -> str:
        """Replace mention keys by names, and remove a first or last one that only addresses us."""
        shorter = text.strip()
        while (found := _KEY.match(shorter)) and found[0] in self.ours:
            shorter = shorter[found.end() :].lstrip(" \t\n,:，：")
        while (found := re.search(r"@_user_[0-9]+\s*$", shorter)) and found[0].strip() in self.ours:
            shorter = shorter[: found.start()].rstrip()
        return _KEY.sub(lambda found: self.name(found[0]), shorter or text)

    def name(self, key: str) -> str:
        return "@all" if key == _EVERYBODY else f"@{self.by_key[key]}" if key in self.by_key else key


def read_content(message_id: str, kind: str, content: str, names: MentionNames) -> ReadContent:
    """Return the content of a message; empty for system messages, e.g. joins."""
    try:
        body = msgspec.json.decode(content) if content else None
    except (msgspec.DecodeError, RecursionError):
        body = None
    found = body if isinstance(body, dict) else {}
    match kind:
        case "text":
            return ReadContent(names.replace_keys(_str(found, "text")))
        case "post":
            return _read_post(message_id, found, names)
        case "image":
            return _file_content(message_id, "image", found, "image_key", "photo", "")
        case "file":
            return _file_content(message_id, "file", found, "file_key", _str(found, "file_name") or "file", "")
        case "audio":
            return _file_content(message_id, "file", found, "file_key", "voice.ogg", "audio/ogg")
        case "media":
            name = _str(found, "file_name") or "video.mp4"
            return _file_content(message_id, "file", found, "file_key", name, "video/mp4")
        case "interactive":
            lines = filter(None, [_str(found, "title"), *_card_lines(found.get("elements"))])
            return ReadContent(names.replace_keys("\n".join(lines)))
        case "system":
            return ReadContent()
    return ReadContent(_placeholder(kind, found, names))


def quoted_text(kind: str, content: str) -> str:
    """Return a message that another one answers; files by their names."""
    words = read_content("", kind, content, MentionNames())
    return lines_of(words.text, ", ".join(f"[file: {one.name}]" for one in words.files))


def forwarded_text(items: Iterable[tuple[str, str, str]]) -> str:
    """Return messages that were forwarded together, each given as sender, type and content."""
    parts = []
    for sender, kind, content in items:
        if shown := quoted_text(kind, content):
            parts.append(f"[forwarded from {sender or 'somebody'}]\n{shown}")
    return "\n\n".join(parts)


def _placeholder(kind: str, body: Mapping[str, Any], names: MentionNames) -> str:
    match kind:
        case "hongbao":
            return _str(body, "text") or "[hongbao]"
        case "vote":
            options = [one for one in _list(body.get("options")) if isinstance(one, str)]
            return "\n".join([f"[vote: {_str(body, 'topic')}]", *(f"- {one}" for one in options)])
        case "todo":
            summary = body.get("summary")
            post = _read_post("", summary if isinstance(summary, dict) else {}, names)
            return f"[task] {post.text}".strip()
    if kind in _PLACEHOLDERS:
        words = defaultdict(str, {key: _str(body, key) for key in body})
        return _PLACEHOLDERS[kind].format_map(words)
    return f"[{kind}]" if _TYPE.fullmatch(kind) else ""


def _read_post(message_id: str, body: Mapping[str, Any], names: MentionNames) -> ReadContent:
    """Return rich text: lines of parts. Some clients nest it by language."""
    if "content" not in body:
        nested = (one for one in body.values() if isinstance(one, dict) and "content" in one)
        body = next(nested, {})
    lines = [_str(body, "title")]
    files = list[RemoteFile]()
    for line in _list(body.get("content")):
        parts = _dicts(line)
        lines.append("".join(map(_part_text, parts)))
        files += [one for part in parts for one in _post_files(message_id, part)]
    return ReadContent(names.replace_keys("\n".join(lines).strip()), tuple(files))


def _post_files(message_id: str, part: Mapping[str, Any]) -> tuple[RemoteFile, ...]:
    match part.get("tag"):
        case "img":
            return _file_content(message_id, "image", part, "image_key", "photo", "").files
        case "media":
            name = _str(part, "file_name")
            media_type = ""
            if not name:
                name = "video.mp4"
                media_type = "video/mp4"
            return _file_content(message_id, "file", part, "file_key", name, media_type).files
        case _:
            return ()


def _part_text(part: Mapping[str, Any]) -> str:
    text = _str(part, "text")
    match part.get("tag"):
        case "a":
            href = _str(part, "href")
            return f"{text} ({href})" if text and href and href != text else href or text
        case "at":
            key = _str(part, "user_id")
            return key if _KEY.fullmatch(key) else f"@{_str(part, 'user_name') or key}"
        case "emotion":
            return f"[{_str(part, 'emoji_type')}]"
        case "hr":
            return "---"
        case "code_block":
            return f"\n```{_str(part, 'language').lower()}\n{text}\n```\n"
        case _:
            return text


def _card_lines(elements: object) -> Iterator[str]:
    """Yield the lines of a card, as messages contain it: lines of parts."""
    for line in _list(elements):
        parts = _dicts(line)
        inner = [one for part in parts for one in _dicts(part.get("elements"))]
        yield "".join(map(_part_text, [*parts, *inner]))


def _file_content(
    message_id: str, form: str, body: Mapping[str, Any], key: str, name: str, media_type: str
) -> ReadContent:
    """Return a resource of a message, by its handle `<message>/<image or file>/<key>`."""
    resource = _str(body, key)
    if not _RESOURCE.fullmatch(resource):
        return ReadContent()
    handle = f"{message_id}/{form}/{resource}"
    return ReadContent(files=(RemoteFile(handle=handle, name=name, media_type=media_type),))


def _str(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
