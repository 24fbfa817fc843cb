"""Schemas of servers, in the form that every provider accepts."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.mcp.strict_provider import faults
from worker.mcp.raw_results import parse_tool
from worker.mcp.schema_repair import SCHEMA_BYTES, repair_schema
from worker.mcp.wire import bound_tool, provider_schema

STRING: dict[str, Any] = {"type": "string"}
ONE: dict[str, Any] = {"properties": {"a": STRING}, "required": ["a"]}
TWO: dict[str, Any] = {"properties": {"b": STRING}, "required": ["b"]}
NULL: dict[str, Any] = {"type": "null"}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "value": STRING,
        "left": {"$ref": "#/$defs/Tree"},
        "more": {"type": "array", "items": {"$ref": "#"}},
    },
}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"$ref": "#/components/schemas/Filter"}, {}),
        ({"$ref": "#/$defs/Missing", "description": "a filter"}, {"description": "a filter"}),
        ({"$ref": "https://example.org/x"}, {}),
        ({"$ref": "#anchor"}, {}),
        ({"$ref": None, "type": "string"}, STRING),
        ({"$ref": 1}, {}),
        ({"$ref": "#/$defs/Name", "description": "own"}, {**STRING, "description": "own"}),
        ({"$ref": "#/definitions/a~1b%20c"}, {"type": "boolean"}),
        ({"$ref": "#/properties/first"}, {"type": "integer"}),
        ({"$ref": "#/$defs/Alias"}, {**STRING, "description": "a name"}),
        ({"$ref": "#/$defs/Loop"}, {}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": None}, {"type": "array", "items": {}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [STRING, STRING]}, {"type": "array", "items": STRING}),
        (
            {"type": "array", "items": [STRING, {"type": "int"}], "additionalItems": False},
            {"type": "array", "items": {"anyOf": [STRING, {"type": "integer"}]}},
        ),
        ({"prefixItems": [STRING], "items": False}, {"type": "array", "items": STRING}),
        ({"items": STRING, "minItems": 1, "maxItems": None}, {"type": "array", "items": STRING, "minItems": 1}),
        ({"type": ["string", "null"]}, {"anyOf": [STRING, NULL]}),
        ({"type": ["string", None], "minLength": 1}, {"anyOf": [{**STRING, "minLength": 1}, NULL]}),
        ({"type": ["string"]}, STRING),
        ({"type": ["integer", "number"]}, {"type": "number"}),
        ({"type": []}, {}),
        ({"type": "string", "nullable": True}, {"anyOf": [STRING, NULL]}),
        *(
            ({"type": name}, {"type": kind})
            for kind, names in {
                "string": ("str", "text", "STRING", " String "),
                "integer": ("int", "long"),
                "number": ("float", "double"),
                "boolean": ("bool",),
                "object": ("dict", "map"),
            }.items()
            for name in names
        ),
        ({"type": "list"}, {"type": "array", "items": {}}),
        ({"type": "any"}, {}),
        ({"type": "Foo"}, {}),
        ({"type": None}, {}),
        ({"type": {"type": "string"}}, {}),
        ({"type": ["string", "any"]}, {}),
        ({"type": "string", "enum": []}, STRING),
        ({"type": "string", "enum": None, "minLength": None, "default": None, "title": None}, STRING),
        ({"enum": ["a", "b", "a"]}, {**STRING, "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"anyOf": [{**STRING, "enum": ["a"]}, NULL]}),
        ({"const": "a"}, {**STRING, "enum": ["a"]}),
        ({"const": 1, "description": "Version"}, {"type": "integer", "description": "Version One of: 1."}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"type": "number", "enum": [1, 2.5]}, {"type": "number", "description": "One of: 1, 2.5."}),
        ({"type": "string", "enum": ["", "a"]}, {**STRING, "description": 'One of: "", "a".'}),
        ({"type": "string", "enum": [1, 2]}, {**STRING, "description": "One of: 1, 2."}),
        ({"type": "string", "enum": ["a", 1]}, {**STRING, "enum": ["a"]}),
        ({"type": "string", "format": "date-time"}, {**STRING, "format": "date-time"}),
        ({"type": "string", "format": "uri", "pattern": "^h"}, {**STRING, "description": "Format: uri. Pattern: ^h."}),
        ({"type": "string", "format": 1, "pattern": []}, STRING),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": False}, {"type": "integer", "minimum": 0}),
        ({"type": "integer", "exclusiveMaximum": 10}, {"type": "integer", "maximum": 9}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "description": "Greater than 0."}),
        ({"type": "number", "minimum": float("nan"), "maximum": 10**400}, {"type": "number"}),
        ({"type": "string", "minLength": -1, "maxLength": "9"}, STRING),
        (True, {}),
        (None, {}),
        ("string", STRING),
        (["string"], {}),
        ({"properties": None}, {}),
        ({"type": "object", "properties": None}, {"type": "object"}),
        ({"type": "object", "properties": []}, {"type": "object"}),
        ({"type": "object", "properties": {"": STRING}, "required": [""]}, {"type": "object"}),
        (
            {"properties": {"a": STRING, "b": False}, "required": ["a", "b", "c", 1]},
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
        ),
        (
            {"properties": {"a": {**STRING, "required": True}, "b": {**STRING, "required": False}}},
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a"]},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "str"}},
            {"type": "object", "additionalProperties": STRING},
        ),
        ({"type": "object", "additionalProperties": False, "patternProperties": {"^x": {}}}, {"type": "object"}),
        ({"anyOf": [STRING, NULL], "default": None, "title": "A"}, {"anyOf": [STRING, NULL], "title": "A"}),
        ({"oneOf": [STRING, {"type": "int"}]}, {"anyOf": [STRING, {"type": "integer"}]}),
        ({"anyOf": []}, {}),
        ({"anyOf": [STRING, True]}, {}),
        (
            {"anyOf": [{"enum": ["a"]}, {"pattern": "x"}], "type": "string"},
            {"anyOf": [{**STRING, "enum": ["a"]}, {**STRING, "description": "Pattern: x."}]},
        ),
        ({"anyOf": "x", "allOf": None, "type": "string"}, STRING),
        ({"allOf": [{"$ref": "#/$defs/Name"}], "description": "own"}, {**STRING, "description": "own"}),
        (
            {"allOf": [ONE, TWO]},
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]},
        ),
        (
            {"properties": {"a": STRING}, "anyOf": [{"required": ["a"]}, {"properties": {"b": STRING}}]},
            {"type": "object", "properties": {"a": STRING, "b": STRING}},
        ),
    ],
)
def test_a_part_that_a_provider_would_refuse_is_repaired(part: Any, expected: Any) -> None:
    """What is clear is written in the form that every provider takes; the rest is any value."""
    schema = {
        "properties": {"first": {"type": "int"}, "a": part},
        "definitions": {"a/b c": {"type": "bool"}},
        "$defs": {
            "Name": STRING,
            "Alias": {"$ref": "#/$defs/Name", "description": "a name"},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }
    repaired = repair_schema(schema)
    assert repaired == {"type": "object", "properties": {"first": {"type": "integer"}, "a": expected}}
    assert faults(repaired) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, OBJECT),
        ({"type": None, "properties": None, "required": None}, OBJECT),
        ({"type": ["object", "null"]}, OBJECT),
        ({"type": "dict", "properties": []}, OBJECT),
        ({"type": "any"}, OBJECT),
        ({"properties": {"a": STRING}, "required": "a"}, {**OBJECT, "properties": {"a": STRING}, "required": ["a"]}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": STRING}}}}, {**OBJECT, "properties": {"a": STRING}}),
        (
            {"anyOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": STRING}}, NULL]},
            {**OBJECT, "properties": {"a": STRING, "b": STRING}},
        ),
        (
            {
                "type": "object",
                "oneOf": [
                    {"properties": {"kind": {"const": "a"}, "x": STRING}, "additionalProperties": False},
                    {"properties": {"kind": {"const": "b"}, "x": {"type": "int"}}, "additionalProperties": False},
                ],
            },
            {
                "type": "object",
                "properties": {"kind": {**STRING, "enum": ["a", "b"]}, "x": {"anyOf": [STRING, {"type": "integer"}]}},
                "additionalProperties": False,
            },
        ),
        (
            {**ONE, "anyOf": [{"required": ["b"]}], "not": {"required": ["c"]}},
            {**OBJECT, **ONE},
        ),
        ({"allOf": [{"properties": {"a": STRING}}, {"required": ["a"]}]}, {**OBJECT, **ONE}),
    ],
)
def test_the_whole_becomes_one_object(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """Alternatives of objects are one object with the properties of all, none of which is required."""
    assert repair_schema(schema) == expected
    assert faults(expected) == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no schema of its parameters"),
        (True, "no schema of its parameters"),
        ({"type": "str"}, "not an object"),
        ({"enum": [{}]}, "fixed choices"),
        ({"anyOf": [{"type": "object"}, STRING]}, "'anyOf' at the top"),
        ({"oneOf": []}, "'oneOf' at the top"),
        ({"oneOf": "x"}, "'oneOf' at the top"),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "object"}]}, "'anyOf' at the top"),
        ({"$ref": "#/$defs/A"}, "a definition that is not there"),
        ({"properties": [{"name": "a"}]}, "not properties with names"),
        ({"properties": {"": STRING}}, "names that providers do not accept"),
        ({"anyOf": [{"properties": {"a b": STRING}}]}, "names that providers do not accept"),
    ],
)
def test_what_is_not_clear_is_left_out_with_a_reason(schema: Any, why: str) -> None:
    """A guess would offer a tool that cannot be called."""
    with pytest.raises(ValueError, match=re.escape(why)):
        repair_schema(schema)


def test_a_schema_that_contains_itself_ends_at_its_type() -> None:
    """Where it begins again."""
    repaired = repair_schema({"properties": {"tree": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": TREE}})
    tree = repaired["properties"]["tree"]["properties"]
    assert tree["left"] == {"type": "object"}
    assert faults(repaired) == []


def test_references_that_multiply_end_early() -> None:
    """Each definition names the next one ten times."""
    definitions = {
        f"D{level}": {"properties": {f"p{n}": {"$ref": f"#/$defs/D{level + 1}"} for n in range(10)}}
        for level in range(8)
    }
    repaired = repair_schema({"properties": {"a": {"$ref": "#/$defs/D0"}}, "$defs": definitions})
    assert len(msgspec.json.encode(repaired)) <= SCHEMA_BYTES
    assert faults(repaired) == []


WORDS = st.sampled_from(
    "type properties required items anyOf oneOf allOf enum const $ref $defs additionalProperties prefixItems nullable "
    "format minimum exclusiveMinimum description default not patternProperties a b".split()
)
VALUES = st.sampled_from(
    ["object", "array", "string", "null", "int", "any", "#", "#/$defs/a", "#/properties/a", "#/x", "a", "b", ""]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | VALUES | st.text(max_size=5)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
PARTS = st.dictionaries(st.sampled_from(["a", "b"]), JSON)
SCHEMAS = st.fixed_dictionaries(
    {"properties": PARTS}, optional={"$defs": PARTS, "required": JSON, "allOf": st.lists(JSON)}
)
TOOLS = st.one_of(
    JSON,
    st.fixed_dictionaries({"name": JSON}, optional={"inputSchema": JSON, "annotations": JSON}),
    st.fixed_dictionaries({"name": st.just("x"), "inputSchema": JSON | SCHEMAS}),
    st.fixed_dictionaries({"name": st.just("x"), "inputSchema": SCHEMAS}),
)


@given(TOOLS)
def test_whatever_a_server_lists_is_offered_well_or_left_out(entry: Any) -> None:
    """With a reason; never does it end the whole list."""
    tool = bound_tool(parse_tool(entry, 1))
    assert tool.name
    if not tool.unfit:
        assert faults(provider_schema(tool)) == []
