"""Arithmetic that can neither run code, nor run for long, nor fill the memory."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from worker.agent.tools.text import shorten
from worker.agent.tools.tool import Safety, ToolContext

DIGITS_LIMIT: Final = 1000
_BITS_LIMIT: Final = int(DIGITS_LIMIT * math.log2(10))
_TEXT_LIMIT_CHARS: Final = 500

Number = int | float


def _round(value: Number, digits: Number = 0) -> Number:
    """Round within limits: Python's `round` would build 10 ** digits, however big that is."""
    if not isinstance(digits, int) or abs(digits) > DIGITS_LIMIT:
        raise ValueError(f"round takes a whole number of digits, at most {DIGITS_LIMIT}")
    return round(value, digits)


_BINARY: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {
    **{one.__name__: one for one in (abs, max, min, math.ceil, math.floor, math.exp, math.sqrt)},
    **{one.__name__: one for one in (math.cos, math.sin, math.tan, math.log, math.log10)},
    "round": _round,
}
_CONSTANTS: Final = {"pi": math.pi, "e": math.e}
_SIGNS: Final = str.maketrans({"×": "*", "÷": "/", "−": "-", "^": "**"})


class CalculateArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """An expression."""

    expression: Annotated[
        str,
        Meta(
            description="Such as `(37 + 5) * 91` or `sqrt(2) ** 3`. Knows + - * / // % **, "
            "parentheses, pi, e, and abs, ceil, cos, exp, floor, log, log10, max, min, round, sin, "
            "sqrt, tan."
        ),
    ]


class Calculate:
    """Returns `37 * 91 = 3367`."""

    name = "calculate"
    description = "Work out an arithmetic expression exactly. Use it instead of calculating yourself."
    parameters = CalculateArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    async def run(self, arguments: CalculateArguments, context: ToolContext) -> str:
        return f"{arguments.expression.strip()} = {_written(evaluate(arguments.expression))}"


def evaluate(expression: str) -> Number:
    """Return the value. Raises ToolFailed, at once, for one that is wrong, unknown or too big."""
    text = expression.strip().translate(_SIGNS)
    shown = repr(shorten(expression, 80))
    if len(text) > _TEXT_LIMIT_CHARS:
        raise ToolFailed(
            f"the expression has {len(text)} characters; at most {_TEXT_LIMIT_CHARS} are allowed, split it"
        )
    try:
        return _checked(_value(ast.parse(text, mode="eval").body))
    except SyntaxError:
        raise ToolFailed(f"{shown} is not an arithmetic expression; write one such as '2 * (3 + 4)'") from None
    except ZeroDivisionError:
        raise ToolFailed(f"{shown} divides by zero") from None
    except OverflowError:
        raise ToolFailed(f"{shown} is too big for a decimal number; use smaller numbers") from None
    except (ValueError, TypeError) as exc:
        raise ToolFailed(f"{shown} has no value: {exc}") from None
    except (RecursionError, MemoryError):
        raise ToolFailed("the expression is nested too deeply; split it") from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _checked(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _UNARY[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _checked(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _checked(_BINARY[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _checked(_FUNCTIONS[name](*map(_value, arguments)))
    raise ToolFailed(
        f"{shorten(ast.unparse(node), 80)!r} is not arithmetic; use numbers, + - * / // % ** and functions"
    )


def _power(base: Number, exponent: Number) -> Number:
    """Return a power. Raises before computing one whose result would be too long."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        if abs(exponent) * math.log2(abs(base)) > _BITS_LIMIT:
            raise _too_long()
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the root of a negative number is not real")
    return float(result) if isinstance(result, float) else int(result)


def _checked(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > _BITS_LIMIT:
        raise _too_long()
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    return value


def _too_long() -> ToolFailed:
    return ToolFailed(f"the result has more than {DIGITS_LIMIT:,} digits; use smaller numbers")


def _written(value: Number) -> str:
    """Return whole numbers in full; others with 15 digits, so that 0.1 + 0.2 is 0.3."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int) else f"{value:.15g}"
