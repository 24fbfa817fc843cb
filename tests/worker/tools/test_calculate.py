"""Arithmetic, and nothing but arithmetic."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import ToolFailed
from worker.agent.tools.tool import ToolContext
from worker.tools.calculate import Calculate, CalculateArguments, evaluate


async def calculated(expression: str) -> str:
    return await Calculate().run(CalculateArguments(expression), ToolContext(session="s", turn=1, call_id="c"))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("37 * 91", "3367"),
        ("(3 + 4) * 5 / 2", "17.5"),
        ("10 / 2", "5"),
        ("7 // 2 - 7 % 4", "0"),
        ("2 ** 3 ** 2", "512"),
        ("-2 ** 2", "-4"),
        ("0.1 + 0.2", "0.3"),
        ("2 ^ 10", "1024"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("sqrt(2) ** 2", "2"),
        ("round(pi, 4)", "3.1416"),
        ("max(1, 2, 3) + min(4, 5) + abs(-6)", "13"),
        ("log(e)", "1"),
        ("2 ** 200", str(2**200)),
        ("10 ** 999", "1" + "0" * 999),
        ("1e3", "1000"),
        ("  1+1 \n", "2"),
    ],
)
async def test_values(expression: str, value: str) -> None:
    """Exact for whole numbers of any size, 15 digits for others; the expression is repeated."""
    assert await calculated(expression) == f"{expression.strip()} = {value}"


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9",
        "(-9)**(9**9)",
        "10 ** 1001",
        "2 ** -100000",
        f"({'*'.join(['9999999999'] * 40)}) ** 9",
        "round(5, -10**9)",
        "round(5.5, 10**9)",
        "1e400",
        "9.0 ** 9999",
        "exp(10000)",
        "10**400 * 1.5",
    ],
)
def test_what_is_too_big_is_refused_at_once(expression: str) -> None:
    """Before it is computed: one message may not stop a worker."""
    started = time.process_time()
    with pytest.raises(ToolFailed):
        evaluate(expression)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("1 / 0", "divides by zero"),
        ("0 ** -1", "divides by zero"),
        ("sqrt(-1)", "has no value"),
        ("(-8) ** (1/3)", "not real"),
        ("max()", "has no value"),
        ("1 +", "not an arithmetic expression"),
        ("", "not an arithmetic expression"),
        ("(" * 300, "not an arithmetic expression"),
        ("1" * 501, "at most 500"),
        ("two + 2", "'two'"),
        ("1\x00", "arithmetic"),
    ],
)
def test_an_error_names_the_trouble(expression: str, says: str) -> None:
    """The model reads it and corrects itself."""
    with pytest.raises(ToolFailed, match=says.replace("(", r"\(")):
        evaluate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "[1 for _ in range(9)]",
        "(lambda: 1)()",
        "'a' * 9",
        "f'{1}'",
        "True + 1",
        "1 if 1 else 2",
        "1 < 2",
        "1 and 2",
        "(x := 5)",
        "abs(*[1])",
        "round(1, ndigits=2)",
        "pi.real",
        "1j",
        "...",
    ],
)
def test_code_is_not_arithmetic(expression: str) -> None:
    """Only numbers, operators and the named functions are looked at; nothing is ever run."""
    with pytest.raises(ToolFailed):
        evaluate(expression)


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from("0123456789.+-*/%()e, sqrtlogabpi×^"), max_size=40))
def test_any_text_gives_a_finite_number_or_a_reason(expression: str) -> None:
    """No other error gets out."""
    try:
        value = evaluate(expression)
    except ToolFailed:
        return
    assert isinstance(value, int) or math.isfinite(value)
