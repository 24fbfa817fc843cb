"""What a setting must be, in words for the person who got it wrong."""

from __future__ import annotations

from typing import Any


def wanted(kind: Any) -> str:
    """`kind` in words, e.g. "a whole number from 0 to 65535"."""
    from msgspec import inspect  # only a wrong setting needs it

    return _words(inspect.type_info(kind))


def _words(info: Any) -> str:
    from msgspec import inspect

    match info:
        case inspect.IntType(ge=low, le=high):
            return f"a whole number{_range(low, high)}"
        case inspect.FloatType(ge=low, gt=over, le=high):
            return f"a number{_range(low, high) if over is None else f' over {over:g}{_range(None, high)}'}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType() | inspect.CustomType():
            return "text, not empty"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(str(value) for value in values)
        case inspect.VarTupleType(item_type=inspect.FloatType()):
            return "a list of numbers"
        case inspect.VarTupleType() | inspect.ListType():
            return "a list of texts"
        case inspect.DictType():
            return "a table of texts"
        case inspect.UnionType(types=types):
            return " or ".join(_words(one) for one in types if not isinstance(one, inspect.NoneType))
        case _:
            return f"a {type(info).__name__.removesuffix('Type').lower()}"


def _range(low: float | None, high: float | None) -> str:
    match low, high:
        case None, None:
            return ""
        case None, _:
            return f" of at most {high:g}"
        case _, None:
            return f" of at least {low:g}"
        case _:
            return f" from {low:g} to {high:g}"
