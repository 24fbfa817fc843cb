"""The lines of a head, field by field: what people write is often almost YAML (a colon, a bracket or a
quote in a sentence), and one such line must spoil neither itself nor the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FIELD: Final = re.compile(r"""(?P<quote>["']?)(?P<key>[A-Za-z][\w.-]*)(?P=quote)[ \t]*:(?:[ \t]+(?P<value>.*)|$)""")
_SIGNS: Final = ("?", ":", "-", "[", "]", "{", "}")
_TIGHT: Final = re.compile(r"(?P<key>name|description|always):(?P<value>\S.*)")
_BLOCK: Final = re.compile(r"[|>][-+0-9]{0,2}(?:[ \t]+#.*)?")
_TABS: Final = re.compile(r"^[ ]*\t[ \t]*", re.MULTILINE)
_ESCAPES: Final = {r"\"": '"', r"\\": "\\", r"\n": " ", r"\t": " ", r"\/": "/"}
_ESCAPE: Final = re.compile("|".join(map(re.escape, _ESCAPES)))


def expand_tabs(text: str) -> str:
    """Replace tabs that indent a line, which YAML refuses, by two spaces each."""
    return _TABS.sub(lambda found: found[0].replace("\t", "  "), text)


def split_fields(text: str) -> Mapping[str, str]:
    """Return the fields by name, each with all of its text behind the colon: lines that are indented,
    or are no field, belong to the field above. Of two with one name the first counts."""
    fields: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        found = _FIELD.fullmatch(line.rstrip()) or _TIGHT.fullmatch(line.rstrip())
        if found is None:
            # A sentence may go on at the edge of the page; signs of YAML there are not a part of it.
            foreign = line.startswith(_SIGNS) and "".join(lines).strip()
            if line.strip() and not line.startswith("#") and not foreign:
                lines.append(line)
            continue
        lines = [found["value"] or ""]
        fields.setdefault(found["key"], lines)
    return {key: "\n".join(value) for key, value in fields.items()}


def as_written(value: str) -> str:
    """Return the text of a field as its author meant it, in one line: quotes around all of it go,
    as does the sign of a block (`|`, `>`); everything else stays, whatever YAML reads in it."""
    first, _, rest = value.partition("\n")
    if _BLOCK.fullmatch(first.strip()):
        return " ".join(rest.split())
    plain = " ".join(value.split())
    if len(plain) > 1 and plain[0] == plain[-1] == "'" and "'" not in plain[1:-1].replace("''", ""):
        return plain[1:-1].replace("''", "'")
    if len(plain) > 1 and plain[0] == plain[-1] == '"' and '"' not in plain[1:-1].replace(r"\"", ""):
        return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], plain[1:-1])
    return plain
