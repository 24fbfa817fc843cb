"""Repair of the schemas that MCP servers list, into the part of JSON Schema that model providers
accept: known types, arrays with items, choices of text, no references, one object at the top.

What is clear is written in that form; what is not becomes a schema that accepts any value, because
the server checks its arguments itself. Nothing here has an effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from worker.mcp.schema_keywords import (
    find_choices,
    find_definition,
    find_types,
    limits_of,
    plain_json,
    required_names,
    words_of,
)

NO_SCHEMA: Final = "it has no schema of its parameters; its server must list one as `inputSchema`"
SCHEMA_BYTES: Final = 8 * 1024
SCHEMA_DEPTH: Final = 12
STEPS: Final = 1_000  # parts of a schema that are looked at; references can multiply them
_EXPANSIONS: Final = (SCHEMA_DEPTH, 1, 0)  # of references in each other: fewer if too large
_REPAIRED_DEPTH: Final = 2 * SCHEMA_DEPTH  # alternatives for a list of types nest deeper
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_Schema = dict[str, Any]


def repair_schema(schema: object) -> _Schema:
    """Return the schema of a tool's parameters in the form that every provider accepts. Raises
    ValueError with the reason for a schema whose meaning is not clear, or that is too large."""
    if not isinstance(schema, dict):
        raise ValueError(NO_SCHEMA)
    if _depth(schema, SCHEMA_DEPTH) > SCHEMA_DEPTH:
        raise ValueError(f"its schema is nested more than {SCHEMA_DEPTH} deep")
    root = plain_json(schema)
    size = len(msgspec.json.encode(root))
    if size > SCHEMA_BYTES:
        raise ValueError(f"its schema has {size:,} bytes; at most {SCHEMA_BYTES:,} are accepted")
    for expansions in _EXPANSIONS:
        try:
            repaired = _Repair(root, expansions).parameters()
        except (_TooLarge, RecursionError):
            continue
        fits = len(msgspec.json.encode(repaired)) <= SCHEMA_BYTES
        if fits and _depth(repaired, _REPAIRED_DEPTH) <= _REPAIRED_DEPTH:
            return repaired
    raise ValueError(f"its schema needs more than {SCHEMA_BYTES:,} bytes in the form that providers accept")


def is_repaired(schema: _Schema, offered: _Schema) -> bool:
    """Return whether the schema that is offered says something else than the one listed."""
    listed = {name: value for name, value in schema.items() if name not in ("$schema", "$id")}
    return offered != {"type": "object", "properties": {}, **listed}


class _TooLarge(Exception):
    """The references of a schema make it too large."""


class _Repair:
    """One repair of the schema `root`. References are replaced by what they point to, as many inside
    each other as `expansions` says; below that, and where one contains itself, only its type stays.
    `inside` are the references that lead to a part."""

    def __init__(self, root: _Schema, expansions: int) -> None:
        self._root = root
        self._expansions = expansions
        self._steps = STEPS

    def parameters(self) -> _Schema:
        """Return the whole, as one object."""
        target = self._root.get("$ref")
        if target is not None and find_definition(self._root, target) is None:
            raise ValueError("its schema refers to a definition that is not there")
        schema, inside = self._resolve(self._root, ())
        if find_choices(schema):
            raise ValueError("its schema has fixed choices at the top, which providers do not accept")
        if (types := find_types(schema)) and "object" not in types:
            raise ValueError("its parameters are not an object")
        if not isinstance(fields := schema.get("properties") or {}, dict):
            raise ValueError("its parameters are not properties with names")
        whole = self._object(schema, inside)
        for name in ("anyOf", "oneOf"):
            if schema.get(name) is not None:
                whole = _merge_branches(whole, self._top_branches(name, schema[name], inside))
        properties = whole.get("properties", {})
        if not all(map(_PROPERTY.fullmatch, {**fields, **properties})):
            raise ValueError("its parameters have names that providers do not accept")
        return {**words_of(schema), **whole, "properties": properties}

    def _top_branches(self, name: str, options: object, inside: tuple[str, ...]) -> list[_Schema]:
        unclear = ValueError(f"its schema has {name!r} at the top, which providers do not accept")
        if not isinstance(options, list) or not options:
            raise unclear
        found: list[_Schema] = []
        for option in options:
            if not isinstance(option, dict):
                raise unclear
            forms = _forms(self.part(option, inside))
            if "$ref" in option and not all(map(_says_anything, forms)):
                raise unclear
            if any(form.get("type", "object") not in ("object", "null") for form in forms):
                raise unclear
            found += forms
        return found

    def part(self, schema: object, inside: tuple[str, ...]) -> _Schema:
        """Return any part as a schema that providers accept; without a type it accepts any value."""
        self._steps -= 1
        if self._steps < 0:
            raise _TooLarge
        if isinstance(schema, str):  # a type alone
            schema = {"type": schema}
        if not isinstance(schema, dict):
            return {}
        schema, inside = self._resolve(schema, inside)
        types = find_types(schema)
        either = [schema[name] for name in ("anyOf", "oneOf") if isinstance(schema.get(name), list)]
        options = either[0] if either else []
        if not options:
            return self._typed(types, schema, inside)
        nulls = [{"type": "null"}] if "null" in types or schema.get("nullable") is True else []
        if "object" in types and set(types) <= {"object", "null"}:
            branches = [form for one in options for form in _forms(self.part(one, inside))]
            forms = [_merge_branches(self._object(schema, inside), branches)]
        else:
            # What the alternatives have in common stands outside of them.
            kind = {"type": types} if types else {}
            forms = [
                self.part({**kind, **one} if isinstance(one, dict) else one, inside)
                for one in options
                if one is not False
            ]
        return _any_of([*forms, *nulls]) | words_of(schema)

    def _typed(self, types: list[str], schema: _Schema, inside: tuple[str, ...]) -> _Schema:
        forms = []
        hints: list[str] = []
        for kind in types:
            limits, more = limits_of(kind, schema)
            hints += more
            form = {"type": kind, **limits}
            if kind == "object":
                form = self._object(schema, inside)
            elif kind == "array":
                form["items"] = self._items(schema, inside)
            forms.append(form)
        return _any_of(forms) | words_of(schema, hints)

    def _object(self, schema: _Schema, inside: tuple[str, ...]) -> _Schema:
        fields = schema.get("properties") or {}
        if not isinstance(fields, dict) or "" in fields:
            return {"type": "object"}
        kept = {name: self.part(field, inside) for name, field in fields.items() if field is not False}
        found: _Schema = {"type": "object"}
        if kept:
            found["properties"] = kept
        if required := [name for name in required_names(schema, fields) if name in kept]:
            found["required"] = required
        others = schema.get("additionalProperties")
        if others is False and not schema.get("patternProperties"):
            found["additionalProperties"] = False
        elif isinstance(others, dict) and _says_anything(values := self.part(others, inside)):
            found["additionalProperties"] = values
        return found

    def _items(self, schema: _Schema, inside: tuple[str, ...]) -> _Schema:
        items = schema.get("items")
        prefix = schema.get("prefixItems")
        several = [one for one in (items, prefix) if isinstance(one, list)]
        if not several:
            return self.part(items, inside)
        # A list of schemas is one for each position. Providers have one for all of them.
        forms = [self.part(one, inside) for positions in several for one in positions]
        if isinstance(items, dict):
            forms.append(self.part(items, inside))
        return _any_of(forms)

    def _resolve(self, schema: _Schema, inside: tuple[str, ...]) -> tuple[_Schema, tuple[str, ...]]:
        """Return a part with its own references and `allOf` replaced by what they say."""
        while "$ref" in schema or isinstance(schema.get("allOf"), list):
            self._steps -= 1
            if self._steps < 0:
                raise _TooLarge
            reference = schema.get("$ref")
            every = schema.get("allOf")
            schema = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
            whole: _Schema = {}
            for one in every if isinstance(every, list) else ():
                if isinstance(one, dict):
                    part, inside = self._resolve(one, inside)
                    whole = _merge(whole, part)
            schema = _merge(whole, schema)
            target = find_definition(self._root, reference)
            if target is None:
                continue
            if reference in inside or len(inside) >= self._expansions:
                target = {"type": target["type"]} if isinstance(target.get("type"), str) else {}
            else:
                inside = (*inside, str(reference))
            schema = _merge(target, schema)
        return schema, inside


def _merge(first: _Schema, second: _Schema) -> _Schema:
    """Return two parts that both hold as one; the second says what the first one does not."""
    merged = {**first, **{name: value for name, value in second.items() if value is not None}}
    one = first.get("properties")
    other = second.get("properties")
    if isinstance(one, dict) and isinstance(other, dict):
        both = {name: {"allOf": [one[name], other[name]]} for name in one if name in other}
        merged["properties"] = {**one, **other, **both}
    one = first.get("required")
    other = second.get("required")
    if isinstance(one, list) and isinstance(other, list):
        merged["required"] = [*one, *other]
    return merged


def _merge_branches(whole: _Schema, branches: Iterable[_Schema]) -> _Schema:
    """Return an object with the properties of all alternatives. None of theirs is required, as the
    arguments need to fit only one of them."""
    properties: dict[str, _Schema] = {}
    closed = []
    for branch in branches:
        if branch.get("type") == "null":
            continue
        closed.append(branch.get("additionalProperties") is False)
        for name, field in branch.get("properties", {}).items():
            properties[name] = _either(properties[name], field) if name in properties else field
    fields = whole.get("properties", {})
    own = {name: field for name, field in fields.items() if _says_anything(field)}
    if properties := {**fields, **properties, **own}:
        whole = {**whole, "properties": properties}
    return {**whole, "additionalProperties": False} if closed and all(closed) else whole


def _either(one: _Schema, other: _Schema) -> _Schema:
    if "enum" in one and "enum" in other:
        return {**one, "enum": list(dict.fromkeys([*one["enum"], *other["enum"]]))}
    return _any_of([one, other])


def _any_of(forms: Iterable[_Schema]) -> _Schema:
    """Return the alternatives as one schema: any value if one of them is, or if there is none."""
    found: list[_Schema] = []
    for form in forms:
        if not _says_anything(form):
            return {}
        found += (one for one in _forms(form) if one not in found)
    return found[0] if len(found) == 1 else {"anyOf": found} if found else {}


def _forms(form: _Schema) -> list[_Schema]:
    return form["anyOf"] if set(form) == {"anyOf"} else [form]


def _says_anything(form: _Schema) -> bool:
    return "type" in form or "anyOf" in form


def _depth(value: object, limit: int, depth: int = 0) -> int:
    if depth > limit or not isinstance(value, dict | list):
        return depth
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(one, limit, depth + 1) for one in inner), default=depth)
