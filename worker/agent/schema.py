"""JSON Schema of a tool's parameters, in the plain form every provider takes: one object, no references."""

from __future__ import annotations

from typing import Any

import msgspec


def object_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a Struct with every `$ref` replaced by what it points at, without titles.

    Raises ValueError for a Struct that contains itself: such a schema cannot be written without references.
    """
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
        fields = {key: _inline(value, components, inside) for key, value in part["properties"].items()}
        rest = {key: value for key, value in part.items() if key not in ("title", "properties")}
        return {**_inline(rest, components, inside), "properties": fields}
    return {
        key: value if key in ("default", "enum") else _inline(value, components, inside)
        for key, value in part.items()
        if key != "title"
    }
