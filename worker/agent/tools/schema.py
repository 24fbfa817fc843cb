"""Parameters of tools: a Struct of ours, or a JSON schema from outside; and their schema in the
plain form that every provider accepts, one object without references."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from worker.agent.tools.json_parameters import JsonParameters, drop_nulls

Parameters = type[msgspec.Struct] | JsonParameters


def schema_of(parameters: Parameters) -> dict[str, Any]:
    """Return the parameters in the form that a model gets."""
    if isinstance(parameters, JsonParameters):
        return parameters.schema
    return object_schema(parameters)


def names_of(parameters: Parameters) -> Iterable[str]:
    """Return the names of the parameters."""
    return tuple(schema_of(parameters).get("properties", ()))


def convert_arguments(arguments: dict[str, Any], parameters: Parameters) -> Any:
    """Return the arguments as `run` gets them; null for an optional one that cannot be null is left
    out. Raises msgspec.ValidationError."""
    arguments = drop_nulls(schema_of(parameters), arguments)
    if isinstance(parameters, JsonParameters):
        return parameters.check(arguments)
    return msgspec.convert(arguments, parameters, strict=False)


@cache  # the same tools are in several boxes
def object_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a Struct with every `$ref` replaced by its target, without titles.
    Raises ValueError for a Struct that contains itself."""
    (whole,), components = msgspec.json.schema_components([parameters], ref_template="{name}")
    inlined = _inline(whole, components, ())
    assert isinstance(inlined, dict)
    inlined.setdefault("properties", {})
    inlined.pop("description", None)  # the Struct's docstring is for readers of the code
    return inlined


def _inline(part: Any, components: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inline(item, components, inside) for item in part]
    if not isinstance(part, dict):
        return part
    name = part.get("$ref")
    if isinstance(name, str):
        if name in inside:
            raise ValueError(f"the parameters {name!r} contain themselves; a tool needs a flat shape")
        beside = {key: value for key, value in part.items() if key != "$ref"}
        return _inline(components[name] | beside, components, (*inside, name))
    if part.get("type") == "object" and isinstance(part.get("properties"), dict):
        fields = part["properties"].items()
        inlined = {key: _inline(value, components, inside) for key, value in fields}
        rest = {key: value for key, value in part.items() if key not in ("title", "properties")}
        return {**_inline(rest, components, inside), "properties": inlined}
    return {
        key: value if key in ("default", "enum") else _inline(value, components, inside)
        for key, value in part.items()
        if key != "title"
    }
