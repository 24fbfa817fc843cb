"""Parameters of a tool from outside, as a JSON schema, and the check of arguments against it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

DEPTH: Final = 20  # arguments nested deeper than this are refused, whatever the schema says
STEPS: Final = 50_000  # parts of a schema and a value that are compared; alternatives can multiply
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
    wrote them. Checked are the common mistakes of models, see `find_problem`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments. Raises msgspec.ValidationError that names what does not fit."""
        if problem := find_problem(self.schema, arguments):
            raise msgspec.ValidationError(problem)
        return arguments


def drop_nulls(schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without null where it stands for one that was left out: in place of an
    optional one that cannot be null. Models write it so. The same dict if there is none."""
    return cast(dict[str, Any], _NullDropper(schema).drop(schema, arguments, DEPTH))


class _NullDropper:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def drop(self, schema: object, value: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth == 0:
            return value
        if isinstance(value, list):
            items = [self.drop(schema.get("items"), one, depth - 1) for one in value]
            return items if any(map(operator.is_not, items, value)) else value
        fields = schema.get("properties")
        if not isinstance(value, dict) or not isinstance(fields, dict):
            return value
        required = schema.get("required")
        needed = required if isinstance(required, list) else ()
        kept = {
            name: self.drop(fields.get(name), inner, depth - 1)
            for name, inner in value.items()
            if inner is not None or name in needed or self._allows_null(fields.get(name))
        }
        same = len(kept) == len(value) and all(kept[name] is value[name] for name in kept)
        return value if same else kept

    def _allows_null(self, field: object) -> bool:
        try:
            return next(_Check(self._root).problems(field, None, "$", DEPTH), "") == ""
        except _TooComplex:
            return True


def find_problem(schema: Schema, value: object) -> str:
    """Return what does not fit first, `""` if the value fits: missing and unknown names, types,
    fixed choices, alternatives, sizes of lists, and definitions of the schema itself. The rest is
    not evaluated: a pattern is a stranger's code, and nothing is fetched for a `$ref`."""
    try:
        return next(_Check(schema).problems(schema, value, "$", DEPTH), "")
    except _TooComplex:
        return "the schema is too complex to check this value"


class _TooComplex(Exception):
    """A schema whose check would take too long."""


class _Check:
    """One comparison of a value with the schema `root`."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = STEPS

    def problems(self, schema: object, value: object, path: str, depth: int) -> Iterator[str]:
        self._steps -= 1
        if self._steps < 0:
            raise _TooComplex
        if depth == 0:
            yield f"it is nested too deep - at `{path[:100]}`"
            return
        if not isinstance(schema, dict):
            schema = {}
        if isinstance(target := schema.get("$ref"), str):
            yield from self.problems(self._definition(target), value, path, depth - 1)
        kinds = schema.get("type")
        types = kinds if isinstance(kinds, list) else [kinds]
        wanted = [kind for kind in types if isinstance(kind, str) and kind in _KINDS]
        if wanted and not any(_is(value, kind) for kind in wanted):
            got = next(kind for kind in ("boolean", "integer", "number", *_KINDS) if _is(value, kind))
            yield f"Expected `{' | '.join(wanted)}`, got `{got}` - at `{path}`"
            return
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(choices, list) and value not in choices:
            yield f"Expected one of {', '.join(map(repr, choices[:20]))} - at `{path}`"
        yield from self._alternatives(schema, value, path, depth - 1)
        if isinstance(value, dict):
            yield from self._object_problems(schema, value, path, depth)
        elif isinstance(value, list):
            yield from self._list_problems(schema, value, path, depth)

    def _definition(self, target: str) -> object:
        found: Any = self._root
        for name in target.removeprefix("#").split("/")[1:] if target.startswith("#") else ():
            found = found.get(name) if isinstance(found, dict) else None
        return found if found is not self._root or target == "#" else None

    def _alternatives(self, schema: Schema, value: object, path: str, depth: int) -> Iterator[str]:
        for name in ("anyOf", "oneOf"):
            options = schema.get(name)
            if not isinstance(options, list) or not options:
                continue
            found = [next(self.problems(option, value, path, depth), "") for option in options]
            if all(found):
                yield f"{found[0]} (nor any other of {len(found)} forms)" if len(found) > 1 else found[0]
        every = schema.get("allOf")
        for part in every if isinstance(every, list) else ():
            yield from self.problems(part, value, path, depth)

    def _list_problems(self, schema: Schema, value: Sequence[object], path: str, depth: int) -> Iterator[str]:
        least = schema.get("minItems")
        most = schema.get("maxItems")
        if (isinstance(least, int) and len(value) < least) or (isinstance(most, int) and len(value) > most):
            yield f"Expected {least or 0} to {'any number of' if most is None else most} items - at `{path}`"
        for position, item in enumerate(value):
            yield from self.problems(schema.get("items"), item, f"{path}[{position}]", depth - 1)

    def _object_problems(self, schema: Schema, value: Schema, path: str, depth: int) -> Iterator[str]:
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
            yield from self.problems(fields.get(name, others), inner, f"{path}.{name[:64]}", depth - 1)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])
