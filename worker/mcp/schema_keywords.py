"""Single keywords of a JSON schema that a stranger wrote: types, choices, limits, references."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

HINT_CHARS: Final = 300  # longest choice, pattern or format that is moved into a description

# Names that servers use for the types of JSON Schema. "" is any value.
_TYPE_NAMES: Final = {
    "string": "string str text varchar char date datetime date-time uri url uuid email",
    "integer": "integer int int32 int64 long short",
    "number": "number float double decimal num real",
    "boolean": "boolean bool",
    "object": "object dict map mapping struct record",
    "array": "array list tuple set sequence",
    "null": "null none nil",
}
TYPES: Final[Mapping[str, str]] = {name: kind for kind, names in _TYPE_NAMES.items() for name in names.split()}
_LIMITS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
}
_LARGEST: Final = 2**53  # beyond it JSON numbers are not exact everywhere


def plain_json(value: Any) -> Any:
    """Return the value without numbers that JSON or providers do not have: they become null."""
    if isinstance(value, dict):
        return {name: plain_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain_json(inner) for inner in value]
    odd = isinstance(value, float) and not math.isfinite(value)
    odd = odd or (isinstance(value, int) and abs(value) >= 2**63)
    return None if odd else value


def find_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema allows; [] for any. A type that is missing is inferred."""
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [] if declared is None else [declared]
    found = [_type_of_name(name) for name in names]
    if not found:
        found = _infer_types(schema)
    if "" in found:
        return []
    if "number" in found:
        found = [kind for kind in found if kind != "integer"]
    if found and schema.get("nullable") is True:
        found.append("null")
    return list(dict.fromkeys(found))


def _type_of_name(name: object) -> str:
    if name is None:
        return "null"
    return TYPES.get(name.strip().lower(), "") if isinstance(name, str) else ""


def _infer_types(schema: Mapping[str, Any]) -> list[str]:
    if isinstance(schema.get("properties"), dict):
        return ["object"]
    if any(isinstance(schema.get(name), dict | list) for name in ("items", "prefixItems")):
        return ["array"]
    return [_type_of_value(value) for value in find_choices(schema)]


def _type_of_value(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def find_choices(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of `const` or `enum`, each once; [] if the schema does not fix them."""
    values = [schema["const"]] if schema.get("const") is not None else schema.get("enum")
    if not isinstance(values, list):
        return []
    return list({_as_text(value): value for value in values}.values())


def limits_of(kind: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what a provider enforces of a scalar or list, and the rest as hints in words."""
    limits: dict[str, Any] = {}
    for name in _LIMITS.get(kind, ()):
        value = schema.get(name)
        if type(value) is int and 0 <= value < _LARGEST:
            limits[name] = value
    hints = _choices(kind, schema, limits)
    match kind:
        case "string":
            hints += _string_hints(schema, limits)
        case "integer" | "number":
            hints += _bounds(kind, schema, limits)
    return limits, hints


def _choices(kind: str, schema: Mapping[str, Any], limits: dict[str, Any]) -> list[str]:
    # Choices that are not text, or empty, are refused by some providers: those are only described.
    values = find_choices(schema)
    if not values or kind == "null":
        return []
    kinds = (kind, "integer") if kind == "number" else (kind,)
    fitting = [value for value in values if _type_of_value(value) in kinds] or values
    if kind == "string" and all(isinstance(value, str) and value for value in fitting):
        limits["enum"] = fitting
        return []
    return [f"One of: {', '.join(map(_as_text, fitting))}"]


def _string_hints(schema: Mapping[str, Any], limits: dict[str, Any]) -> list[str]:
    # Providers know different formats, and different kinds of regular expressions.
    known = schema.get("format")
    pattern = schema.get("pattern")
    hints = []
    if known == "date-time":
        limits["format"] = known
    elif isinstance(known, str) and known:
        hints.append(f"Format: {known}")
    if isinstance(pattern, str) and pattern:
        hints.append(f"Pattern: {pattern}")
    return hints


def _bounds(kind: str, schema: Mapping[str, Any], limits: dict[str, Any]) -> list[str]:
    hints = []
    for name, outer, step, words in (
        ("minimum", "exclusiveMinimum", 1, "Greater than"),
        ("maximum", "exclusiveMaximum", -1, "Less than"),
    ):
        bound = schema.get(name)
        exclusive = schema.get(outer)
        if exclusive is True:  # draft 4: the bound itself is excluded
            exclusive = bound
            bound = None
        if _is_number(bound):
            limits[name] = bound
        if not _is_number(exclusive):
            continue
        if kind == "integer" and type(exclusive) is int:
            inner = exclusive + step
            both = [inner, limits.get(name, inner)]
            limits[name] = max(both) if step > 0 else min(both)
        else:
            hints.append(f"{words} {exclusive}")
    if _is_number(factor := schema.get("multipleOf")):
        hints.append(f"A multiple of {factor}")
    return hints


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def words_of(schema: Mapping[str, Any], hints: Iterable[str] = ()) -> dict[str, Any]:
    """Return the title, the description with the hints after it, and the default."""
    words = {name: schema[name] for name in ("title", "description") if isinstance(schema.get(name), str)}
    sentences = [f"{hint[:HINT_CHARS]}." for hint in dict.fromkeys(hints)]
    if sentences:
        own = words.get("description", "").strip()
        words["description"] = " ".join(filter(None, [own, *sentences]))
    if schema.get("default") is not None:
        words["default"] = schema["default"]
    return words


def find_definition(root: Mapping[str, Any], target: object) -> dict[str, Any] | None:
    """Return the part of the schema that a `$ref` points to; None if it is not there."""
    if not isinstance(target, str) or not re.match(r"#(/|$)", target):
        return None
    found: Any = root
    for name in unquote(target[1:]).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and re.fullmatch(r"[0-9]{1,4}", name):
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found if isinstance(found, dict) else None


def required_names(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> list[str]:
    """Return the required ones of the properties, also where each says it of itself (draft 3)."""
    required = schema.get("required")
    names: Sequence[Any] = required if isinstance(required, list) else [required]
    wanted = {name for name in names if isinstance(name, str)}
    for name, one in properties.items():
        if isinstance(one, dict) and one.get("required") is True:
            wanted.add(name)
    return [name for name in properties if name in wanted]


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
