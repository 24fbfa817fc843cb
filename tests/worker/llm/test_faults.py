"""What a provider says about a fault, understood."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.clock import HandClock
from worker.llm.clients.faults import (
    REASON_CHARS,
    kind_of_error,
    kind_of_refusal,
    model_error,
    retry_after_s,
)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:17:10 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2070 00:00:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e99"}, None),
        ({"retry-after": "Thu, 99 Jan 99999999 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """By our clock; what is unclear or longer than a day is no wish that we can meet."""
    assert retry_after_s(headers, HandClock(1000.0)) == seconds


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            '{"error": {"code": "context_length_exceeded", "message": "Please reduce the length."}}',
            "context_length",
        ),
        (400, "This model's maximum context length is 8192 tokens", "context_length"),
        (400, "Prompt contains 9 tokens; too large for model with 8 maximum context length", "context_length"),
        (500, "the request exceeds the available context size", "context_length"),
        (429, "rate limit; your maximum context length is fine", "rate_limit"),
        (400, "temperature is wrong", "bad_request"),
        (402, "", "billing"),
        (302, "", "bad_request"),
        (503, "", "overloaded"),
    ],
)
def test_a_refusal_has_a_kind(status: int, body: str, kind: str) -> None:
    """By its status, except that only the text tells a prompt that is too long."""
    assert kind_of_refusal(status, body) == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "x"}, "rate_limit"),
        ({"code": "502", "message": "x"}, "overloaded"),
        ({"code": 401}, "auth"),
        ({"code": "server_error", "message": "x"}, "otherwise"),
        ({"code": None, "type": "api_error"}, "otherwise"),
        ({"code": 9999999999999}, "otherwise"),
        ({"code": "context_length_exceeded"}, "context_length"),
        ("boom", "otherwise"),
        (True, "otherwise"),
        ([], "otherwise"),
    ],
)
def test_an_error_inside_an_answer_has_a_kind(error: Any, kind: str) -> None:
    """Whatever shape it has."""
    assert kind_of_error(error, "otherwise") == kind


def test_a_reason_is_short_and_has_no_secret() -> None:
    """Providers quote keys; a secret that the cut would go through is masked before."""
    error = model_error("m", "auth", 401, reason="the key sk-abcdefgh12345678 is wrong")
    assert error.reason == "the key *** is wrong"
    assert "wrong" not in str(error)
    padding = "x" * (REASON_CHARS - 8)
    assert model_error("m", "auth", 401, reason=f"{padding} sk-abcdefgh12345678").reason == f"{padding} ***"
    assert len(model_error("m", "auth", 401, reason="y" * 1000).reason) == REASON_CHARS
