"""Parameters of tools that come from outside."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from worker.agent.tools.json_parameters import DEPTH, JsonParameters
from worker.agent.tools.schema import convert_arguments, names_of, object_schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "(a+)+$"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "kind": {"enum": ["file", "folder"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "or_null": {"type": ["string", "null"]},
        "more": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
        "free": {},
        "odd": {"type": {"not": "a kind"}, "enum": "x", "properties": 1, "required": 2, "items": 3},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a" * 40 + "!"},
        {"path": "x", "count": 3, "share": 2, "kind": "file", "tags": ["a"], "or_null": None, "more": {"x": True}},
        {"path": "x", "count": 3.0, "share": 0.5, "free": [1, {"a": None}], "odd": {"any": ["thing"]}},
    ],
)
def test_arguments_that_fit_are_passed_on_as_they_are(arguments: dict[str, Any]) -> None:
    """A pattern is not run here: its author is a stranger, and some take for ever."""
    assert JsonParameters(SCHEMA).check(arguments) is arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "missing required field `path`"),
        ({"path": 1}, "Expected `string`, got `integer` - at `$.path`"),
        ({"path": "x", "count": True}, "Expected `integer`, got `boolean` - at `$.count`"),
        ({"path": "x", "count": 1.5}, "Expected `integer`, got `number` - at `$.count`"),
        ({"path": "x", "kind": "pipe"}, "Expected one of 'file', 'folder' - at `$.kind`"),
        ({"path": "x", "tags": ["a", 2]}, "Expected `string`, got `integer` - at `$.tags[1]`"),
        ({"path": "x", "or_null": 1}, "Expected `string | null`, got `integer`"),
        ({"path": "x", "more": {}}, "missing required field `x` - at `$.more`"),
        ({"path": "x", "pth": "y"}, "unknown field `pth`"),
    ],
)
def test_what_does_not_fit_is_named(arguments: dict[str, Any], expected: str) -> None:
    """With its place, so that a model can correct it."""
    with pytest.raises(msgspec.ValidationError) as caught:
        JsonParameters(SCHEMA).check(arguments)
    assert expected in str(caught.value)


def test_arguments_without_a_bottom_are_refused() -> None:
    """Whatever the schema says of them."""
    deep: dict[str, Any] = {}
    for _ in range(DEPTH + 1):
        deep = {"a": deep}
    with pytest.raises(msgspec.ValidationError, match="nested too deep"):
        JsonParameters({"type": "object"}).check(deep)


def test_the_names_are_those_of_the_schema() -> None:
    """For the text that a model reads when it used others."""
    assert "or_null" in names_of(JsonParameters(SCHEMA))
    assert names_of(JsonParameters({"type": "object"})) == ()


class Lines(msgspec.Struct, frozen=True):
    """Parameters inside of others."""

    first: int = 1


class Page(msgspec.Struct, frozen=True):
    """Parameters of one of our own tools."""

    path: str
    start: int = 1
    kind: Literal["text", "bytes"] = "text"
    until: int | None = 7
    lines: tuple[Lines, ...] = ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "x", "start": None, "kind": None, "lines": None}, Page("x")),
        ({"path": "x", "until": None}, Page("x", until=None)),
        ({"path": "x", "lines": [{"first": None}, {"first": 2}]}, Page("x", lines=(Lines(), Lines(2)))),
    ],
)
def test_null_for_an_optional_argument_of_our_own_tools_is_left_out(arguments: dict[str, Any], expected: Page) -> None:
    """Its default counts. Where null is a value of its own, it stays one."""
    assert convert_arguments(arguments, Page) == expected


@pytest.mark.parametrize("arguments", [{"path": None}, {"path": "x", "lines": [None]}])
def test_null_for_what_is_needed_is_refused(arguments: dict[str, Any]) -> None:
    """The model has to say what it means."""
    for parameters in (Page, JsonParameters(object_schema(Page))):
        with pytest.raises(msgspec.ValidationError, match="null"):
            convert_arguments(arguments, parameters)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "x", "count": None, "kind": None, "tags": None, "more": None}, {"path": "x"}),
        ({"path": "x", "or_null": None, "free": None}, {"path": "x", "or_null": None, "free": None}),
        ({"path": "x", "list": [{"a": None, "b": 1}]}, {"path": "x", "list": [{"b": 1}]}),
        ({"path": "x", "any": None, "ref": None}, {"path": "x", "any": None}),
    ],
)
def test_null_for_an_optional_argument_is_left_out(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    """So are arguments inside of others; the rest goes to the tool as the model wrote it."""
    string = {"type": "string"}
    fields = {
        **SCHEMA["properties"],
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": string, "b": {}}}},
        "any": {"anyOf": [string, {"type": "null"}]},
        "ref": {"$ref": "#/properties/count"},
    }
    before = repr(arguments)
    assert convert_arguments(arguments, JsonParameters({**SCHEMA, "properties": fields})) == expected
    assert repr(arguments) == before, "the turn keeps what the model wrote"
