"""The head of a SKILL.md: YAML between two lines of `---`, with the fields that a skill may set."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Final

import msgspec

HEAD_LIMIT_BYTES: Final = 8 * 1024
_DEPTH: Final = 20

_HEAD = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)

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


class _WrittenHead(msgspec.Struct, frozen=True):
    description: str | None = None
    always: bool = False
    metadata: _Metadata | str | None = None


def parse_skill(text: str) -> tuple[Head, str]:
    """Return the head and the instructions below it; without a head all is instructions. Raises
    BadSkill, also for an empty text and for a head without an end, which is a file half written."""
    text = text.removeprefix("\ufeff")
    found = _HEAD.match(text)
    if found is None:
        if text.startswith("---") or not text.strip():
            raise BadSkill("it does not begin with a head between two lines of '---'")
        return Head(), text.strip()
    head = _parse_head(found[1])
    if isinstance(head, str):
        raise BadSkill(head)
    return head, text[found.end() :].strip()


@lru_cache(maxsize=256)
def _parse_head(text: str) -> Head | str:
    """Return a head, or what is wrong with it. Cached: every turn reads skills of workspaces."""
    import yaml  # type: ignore[import-untyped]  # here, for a worker without skills never needs it

    if len(text.encode()) > HEAD_LIMIT_BYTES:
        return f"its head has more than {HEAD_LIMIT_BYTES:,} bytes"
    try:
        _refuse_bombs(text)
        written = msgspec.convert(yaml.safe_load(text) or {}, _WrittenHead)
        meta = written.metadata
        if isinstance(meta, str):
            meta = msgspec.json.decode(meta, type=_Metadata)
    except BadSkill as exc:
        return str(exc)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        return f"its head is not YAML (line {mark.line + 2})" if mark else "its head is not YAML"
    except msgspec.MsgspecError as exc:
        return f"its head does not fit: {exc}"
    except (ValueError, OverflowError, RecursionError) as exc:  # a date such as 2026-99-99
        return f"its head cannot be read ({type(exc).__name__})"
    description = " ".join((written.description or "").split())
    nanobot = (meta and meta.nanobot) or _Nanobot()
    needs = nanobot.requires or _Requires()
    return Head(description, written.always or nanobot.always, needs.bins, needs.env)


def _refuse_bombs(text: str) -> None:
    """Raise BadSkill for references, with which a few bytes become many, and for deep nesting."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise BadSkill("its head has references ('*name'); write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH:
                raise BadSkill(f"its head is nested more than {_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
