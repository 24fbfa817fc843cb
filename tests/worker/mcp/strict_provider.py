"""A checker of tool schemas that is as strict as the strictest model provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

TYPES = {"string", "integer", "number", "boolean", "object", "array", "null"}


def faults(parameters: Any) -> list[str]:
    """Return why a provider would refuse a tool with these parameters; [] if none would."""
    found = [error.message for error in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(parameters)]
    if found:
        return found
    found = [
        f"{word!r} at the top" for word in ("anyOf", "oneOf", "allOf", "enum", "not", "$ref") if word in parameters
    ]
    if parameters.get("type") != "object" or "properties" not in parameters:
        found.append("no object at the top")
    return [*found, *_faults(parameters, parameters)]


def _faults(schema: Any, root: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"a schema that is no object: {schema!r}"
        return
    kind = schema.get("type")
    if "type" in schema and kind not in TYPES:
        yield f"an unknown type {kind!r}"
    if kind == "array" and "items" not in schema:
        yield "an array without items"
    if "$ref" in schema:
        found = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            yield f"a reference to nothing: {schema['$ref']!r}"
    if "enum" in schema and not (schema["enum"] and all(isinstance(one, str) and one for one in schema["enum"])):
        yield f"choices that are not texts: {schema['enum']!r}"
    if schema.get("format", "date-time") != "date-time":
        yield f"an unknown format {schema['format']!r}"
    for word in ("const", "nullable", "oneOf", "allOf", "$defs", "definitions", "pattern", "exclusiveMinimum"):
        if word in schema:
            yield f"the keyword {word!r}"
    properties = schema.get("properties", {})
    if "" in properties:
        yield "a property without a name"
    if not set(schema.get("required", [])) <= set(properties):
        yield "a required name that is no property"
    inner = [*properties.values(), *schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]
    others = schema.get("additionalProperties")
    for one in [*inner, *([others] if isinstance(others, dict) else [])]:
        yield from _faults(one, root)
