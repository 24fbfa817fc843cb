"""Answers of the demo model in a form that a program asked for: the smallest value that fits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from worker.agent.model.answer_form import read_form

_DEPTH: Final = 10
_PARTS: Final = 1000
_ITEMS: Final = 10
_WORDS_CHARS: Final = 200


def fill_form(system: str, words: str) -> str | None:
    """Return a JSON text that fits the schema in a system text, with `words` for texts; None if it
    has no schema."""
    schema = read_form(system)
    if schema is None:
        return None
    return msgspec.json.encode(_Filler(schema, words[:_WORDS_CHARS]).value(schema, _DEPTH)).decode()


class _Filler:
    """Fills one schema, up to a limit of parts: each level of it may multiply them."""

    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words
        self._left = _PARTS

    def value(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if not isinstance(schema, dict) or depth == 0 or self._left < 0:
            return None
        if "const" in schema:
            return schema["const"]
        if isinstance(target := schema.get("$ref"), str):
            found = self._root
            for name in target.split("/")[1:]:
                found = found.get(name) if isinstance(found, dict) else None
            return self.value(found, depth - 1)
        for name in ("enum", "anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(name), list) and options:
                return options[0] if name == "enum" else self.value(options[0], depth - 1)
        kind = schema.get("type")
        fields = schema.get("properties")
        match kind[0] if isinstance(kind, list) and kind else kind:
            case "array":
                least = schema.get("minItems")
                many = min(least, _ITEMS) if isinstance(least, int) and least > 1 else 1
                return [self.value(schema.get("items"), depth - 1)] * many
            case "integer" | "number":
                return 1
            case "boolean":
                return True
            case "string":
                return self._words
            case "null":
                return None
        if not isinstance(fields, dict) or not fields:
            return {"answer": self._words}
        return {name: self.value(inner, depth - 1) for name, inner in fields.items()}
