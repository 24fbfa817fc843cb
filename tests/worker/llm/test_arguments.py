"""Arguments are read however badly they are written, and never by guessing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.llm.clients.arguments import LIMIT_CHARS, parse_arguments


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  \n", {}),
        ("{}", {}),
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'b'}", {"a": "b"}),
        ('{"a": "cut', {"a": "cut"}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure! {"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": True}', {"a": True}),
        ('{"a": "é\\n"}', {"a": "é\n"}),
        ("[1]", None),
        ('[{"a": 1}]', {"a": 1}),
        ("5", None),
        ("null", {}),
        ('"text"', None),
        ("no json at all", None),
        ("{" * 5000, None),
        ("{'a':" * 300, None),
        ('{"a": "\ud800"}', None),
    ],
)
def test_broken_arguments_are_repaired_if_they_are_an_object(raw: str, arguments: dict[str, Any] | None) -> None:
    """Trailing comma, single quotes, a cut string, a fence, an object written twice; else None."""
    assert parse_arguments(raw) == arguments


def test_long_broken_text_is_not_repaired() -> None:
    """Repairing takes time on the event loop; valid text of any length is read."""
    assert parse_arguments('{"a": "' + "x" * LIMIT_CHARS) is None
    assert parse_arguments('{"a": "' + "x" * LIMIT_CHARS + '"}') == {"a": "x" * LIMIT_CHARS}


@settings(max_examples=1000, deadline=None)
@given(st.one_of(st.text(st.characters()), st.text(st.sampled_from("{}[]\"',:\\ntrue0.5-`e\ud800 "))))
def test_no_text_ever_raises(raw: str) -> None:
    """The answer is an object that can be written again, or None."""
    arguments = parse_arguments(raw)
    if arguments is not None:
        msgspec.json.encode(arguments)
