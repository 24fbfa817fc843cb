"""The head of a SKILL.md: YAML between two lines of `---`, with the fields that a skill may set. What is
not YAML is read line by line, so that a field that is not used here never spoils a skill."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from worker.skills.head_lines import as_written, expand_tabs, split_fields

HEAD_LIMIT_BYTES: Final = 8 * 1024
_DEPTH: Final = 20

_HEAD = re.compile(r"\A---[ \t]*\n(.*?)^(?:---+|\.\.\.)[ \t]*$\n?", re.DOTALL | re.MULTILINE)
# Fields and indented lines, up to the first line that is neither.
_OPEN_HEAD = re.compile(r"\A---[ \t]*\n((?:(?:[ \t]+\S.*|[\w\"'.-]+[ \t]*:(?:[ \t].*)?)(?:\n|\Z))+)")

Program = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z")]
Variable = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]


class BadSkill(ValueError):
    """Raised for a SKILL.md that is skipped; the text says why, and quotes nothing of it."""


class Head(msgspec.Struct, frozen=True):
    """The fields of a skill: its purpose (`""`: not given, it goes by the name of its folder),
    whether it is always active, and its requirements."""

    description: str = ""
    always: bool = False
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class _Requires(msgspec.Struct, frozen=True):
    bins: Annotated[tuple[Program, ...], msgspec.Meta(max_length=20)] = ()
    env: Annotated[tuple[Variable, ...], msgspec.Meta(max_length=20)] = ()


class _Nanobot(msgspec.Struct, frozen=True):
    always: bool = False
    requires: _Requires | None = None


class _Metadata(msgspec.Struct, frozen=True):
    nanobot: _Nanobot | None = None


class _Always(msgspec.Struct, frozen=True):
    always: bool = False


def parse_skill(text: str) -> tuple[Head, str]:
    """Return the head and the instructions below it; without a head all is instructions. A head whose
    last line is missing ends where its fields end. Raises BadSkill, also for an empty text and for
    a head without an end that has no description yet, which is a file half written."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise BadSkill("it is empty")
    text = text if text.startswith("---") else text.lstrip()
    if not text.startswith("---"):
        return Head(), text.strip()
    found = _HEAD.match(text)
    if found is None:
        found = _OPEN_HEAD.match(text)
        if found is None or "description" not in split_fields(found[1]):
            raise BadSkill("its head has no end; write a line of '---' below the fields")
    head = _parse_head(found[1])
    if isinstance(head, str):
        raise BadSkill(head)
    return head, text[found.end() :].strip()


@lru_cache(maxsize=256)
def _parse_head(text: str) -> Head | str:
    """Return a head, or what is wrong with it. Cached: every turn reads skills of workspaces."""
    if len(text.encode("utf-8", "replace")) > HEAD_LIMIT_BYTES:
        return f"its head has more than {HEAD_LIMIT_BYTES:,} bytes"
    text = expand_tabs(text)
    lines = split_fields(text)
    whole = _load(text)
    values = whole if isinstance(whole, dict) else {key: _load_field(key, value) for key, value in lines.items()}
    if not values and text.strip() and not lines:
        return "its head has no fields; write lines such as 'description: what it is for'"
    try:
        always = msgspec.convert({"always": values.get("always") or False}, _Always).always
        nanobot = _nanobot(values.get("metadata"), lines.get("metadata", ""))
    except msgspec.MsgspecError as exc:
        return f"its head does not fit: {str(exc).replace('`', chr(39))}"
    except BadSkill as exc:
        return str(exc)
    description = _description(values.get("description"), lines.get("description"))
    needs = nanobot.requires or _Requires()
    return Head(description, always or nanobot.always, needs.bins, needs.env)


def _description(value: Any, written: str | None) -> str:
    """Return the description as it is written: YAML would cut it at ` #`, take `5` for a number, and a
    sentence in brackets for a list."""
    if written is not None:
        plain = written.lstrip()
        special = not isinstance(value, str) or " #" in written or plain[:1] in ("&", "!", "*", "#")
        if special and plain not in ("", "~", "null"):
            return as_written(written)
    return " ".join(value.split()) if isinstance(value, str) else ""


def _nanobot(value: Any, written: str) -> _Nanobot:
    """Return our part of the metadata; that of other programs may be anything. Raises BadSkill where
    ours cannot be read: what it requires must not be lost."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            value = None
    if not isinstance(value, dict):
        if "nanobot" in written:
            raise BadSkill("its metadata cannot be read; write it as in 'metadata: {nanobot: {always: true}}'")
        return _Nanobot()
    return msgspec.convert({"nanobot": value.get("nanobot")}, _Metadata).nanobot or _Nanobot()


def _load_field(key: str, written: str) -> Any:
    """Return the value of one field of a head that is not YAML as a whole, None for no value."""
    found = _load(f"{key}: {written}")
    return found.get(key) if isinstance(found, dict) else None


def _load(text: str) -> Any:
    """Return what YAML reads in a text; None for what is not YAML, for references, with which a few
    bytes become many, and for deep nesting."""
    import yaml  # type: ignore[import-untyped]  # here, for a worker without skills never needs it

    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                return None
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _DEPTH:
                    return None
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError):  # such as 2026-99-99
        return None
