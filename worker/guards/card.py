"""The card of a tool call: its arguments as text, whole, for the person who is asked to allow it.
Two different calls never have the same card, except where known secrets are named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from shared.redaction import REDACTOR

CARD_CHARS: Final = 100_000
"""The longest card. A call with a longer one is refused: nobody reads it."""

VALUE_CHARS: Final = 200
"""A longer path or address is left out: the card of the call has it whole."""

_OPEN, _CLOSE = "⟨", "⟩"  # around everything that stands for something else
# Unicode counts these as printable, but they have no ink: joiners, fillers, selectors of variants.
_BLANK_INK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_LONG_CHARS: Final = 80  # a list or table with more is put on several lines
# Blanks that would push the rest out of sight, or that nobody sees: at the end of a line.
_BLANKS: Final = re.compile(r" {41,}|\n{6,}| +(?=\n|\Z)|\n+\Z")
_LINE_END: Final = re.compile(r" +$", re.MULTILINE)


class _VisibleCharacters(dict[int, str]):
    """The table of `str.translate`, filled with the characters that were met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = char == "\n" or (char.isprintable() and char not in _OPEN + _CLOSE and not _BLANK_INK.match(char))
        self[code] = char if plain else f"{_OPEN}U+{code:04X}{_CLOSE}"
        return self[code]


_VISIBLE: Final = _VisibleCharacters()


def render_card(tool: str, arguments: Mapping[str, Any]) -> str:
    """Render the arguments of a call: a command as a line of a shell, all others by name."""
    # An empty line of a value is shown without the blanks that a line begins with.
    return "\n".join(_LINE_END.sub("", _entry(tool, name, value)) for name, value in arguments.items())


def describe_touches(tool: str, arguments: Mapping[str, Any], *, folder: str, network: bool) -> tuple[str, ...]:
    """Return `label: value` for each thing that a call reaches. `folder` is the operator's folder
    that the chat works on, `network` whether commands have one. Nothing is told of tools that others
    wrote: only they know what those do."""
    files = f"the folder {folder}" if folder else "the workspace of this chat"
    match tool:
        case "exec":
            reach = "public addresses, through the proxy" if network else "none"
            return _known(files=files, network=reach)
        case "write_file" | "edit_file":
            return _known(writes=_text(arguments.get("path")), network="none")
        case "read_file" | "list_dir":
            return _known(reads=_text(arguments.get("path")) or files, network="none")
        case "glob" | "grep":
            return _known(reads=files, network="none")
        case "web_fetch":
            return _known(address=_host(arguments.get("url")))
        case "web_search":
            return _known(network="the search service")
        case "message":
            return _known(chat=_text(arguments.get("chat")) or "this one")
        case "cron":
            return _known(schedules="those of this chat")
        case _:
            return ()


def visible(text: str) -> str:
    """Return a text in which every character can be seen; known secrets are only named."""
    pieces = []
    for piece, secret in REDACTOR.split(text):
        if secret is None:
            pieces.append(piece.translate(_VISIBLE))
        else:
            pieces.append(f"{_OPEN}{f'your secret {secret}'.rstrip()}{_CLOSE}")
    return _BLANKS.sub(_count, "".join(pieces))


def _entry(tool: str, name: str, value: object) -> str:
    """Return the lines of one argument. How a line begins tells its kind: `$ ` and `> ` a command,
    two spaces a value of several lines, anything else the name of an argument."""
    if tool == "exec" and name == "command" and isinstance(value, str) and value:
        return "$ " + visible(value).replace("\n", "\n> ")
    label = visible(name if _PLAIN_NAME.fullmatch(name) else _json(name))
    if not isinstance(value, str) or _reads_as_json(value):
        text = visible(_json(value))
        if isinstance(value, str) or len(text) <= _LONG_CHARS:
            return f"{label}: {text}"
        pretty = visible(msgspec.json.format(_json(value), indent=2)).replace("\n", "\n  ")
        return f"{label}:\n  {pretty}"
    text = visible(value)
    return f"{label}: |\n{text}".replace("\n", "\n  ") if "\n" in text else f"{label}: {text}"


def _reads_as_json(text: str) -> bool:
    """Return whether a text, shown plainly, would read as another value, or as nothing."""
    if text in ("", "|"):
        return True
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _count(blanks: re.Match[str]) -> str:
    run = blanks[0]
    times = f" × {len(run):,}" if len(run) > 1 else ""
    return f"{_OPEN}U+{ord(run[0]):04X}{times}{_CLOSE}"


def _known(**values: str) -> tuple[str, ...]:
    return tuple(f"{label}: {value}" for label, value in values.items() if value)


def _text(value: object) -> str:
    text = visible(value).replace("\n", " ") if isinstance(value, str) else ""
    return text if len(text) <= VALUE_CHARS else ""


def _host(url: object) -> str:
    """Return the host of an address; "" where it cannot be told for sure."""
    try:
        return _text(urlsplit(str(url)).hostname or "")
    except ValueError:
        return ""
