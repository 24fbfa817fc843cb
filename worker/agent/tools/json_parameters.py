"""Parameters of a tool from outside, as a JSON schema, and the check of arguments against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

DEPTH: Final = 20  # arguments nested deeper than this are refused, whatever the schema says
Schema = Mapping[str, Any]
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class JsonParameters:
    """The parameters of a tool, as the schema of an object. `run` gets the arguments as the model
    wrote them. Checked are the common mistakes of models: missing and unknown names, types and
    fixed choices. The rest of a schema is not evaluated; a pattern is a stranger's code."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments. Raises msgspec.ValidationError that names what does not fit."""
        for problem in _problems(self.schema, arguments, "$", DEPTH):
            raise msgspec.ValidationError(problem)
        return arguments


def _problems(schema: object, value: object, path: str, depth: int) -> Iterator[str]:
    if depth == 0:
        yield f"it is nested too deep - at `{path[:100]}`"
        return
    if not isinstance(schema, dict):
        schema = {}
    kinds = schema.get("type")
    types = kinds if isinstance(kinds, list) else [kinds]
    wanted = [kind for kind in types if isinstance(kind, str) and kind in _KINDS]
    if wanted and not any(_is(value, kind) for kind in wanted):
        got = next(kind for kind in ("boolean", "integer", "number", *_KINDS) if _is(value, kind))
        yield f"Expected `{' | '.join(wanted)}`, got `{got}` - at `{path}`"
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"Expected one of {', '.join(map(repr, choices[:20]))} - at `{path}`"
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path, depth)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _problems(schema.get("items"), item, f"{path}[{position}]", depth - 1)


def _object_problems(schema: Schema, value: Schema, path: str, depth: int) -> Iterator[str]:
    fields = schema.get("properties")
    fields = fields if isinstance(fields, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            yield f"Object missing required field `{name}` - at `{path}`"
    others = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name not in fields and others is False:
            yield f"Object contains unknown field `{name[:64]}` - at `{path}`"
        yield from _problems(fields.get(name, others), inner, f"{path}.{name[:64]}", depth - 1)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])
