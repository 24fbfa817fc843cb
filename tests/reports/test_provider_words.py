"""What a provider said when it refused reaches the owner: the words in whatever body it sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from worker.llm.clients.reasons import read_reason

BEFORE: Final = {
    "test_the_words_of_a_refusal_are_found_in_any_form": 16,
    "test_a_body_without_words_gives_none": 6,
    "test_a_broken_body_breaks_nothing": 5,
}

FILE: Final = Path(__file__).parents[1] / "data" / "reports" / "provider-words.json"
WORDS: Final = {row["name"]: (row["body"], row["right"]) for row in json.loads(FILE.read_text())}


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_a_refusal_are_found_in_any_form(name: str) -> None:
    """One line, from the place where this provider or gateway puts them."""
    body, words = WORDS[name]
    assert read_reason(body) == words


EMPTY: Final = {
    "nothing": "",
    "a number": '{"error": {"code": 7}}',
    "a page without a title": "<html>bad gateway</html>",
    "null": "null",
    "true": "true",
    "nested too deep": '{"error":' * 50 + '"x"' + "}" * 50,
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_body_without_words_gives_none(name: str) -> None:
    """Nothing is made up, and nothing breaks."""
    assert read_reason(EMPTY[name]) == ""


@pytest.mark.parametrize("body", ["[" * 100_000, '{"error":' * 100_000, '{"error":"\\ud800"}', "\ufeff{}", "data: {"])
def test_a_broken_body_breaks_nothing(body: str) -> None:
    """The refusal itself must not become another fault."""
    assert isinstance(read_reason(body), str)
