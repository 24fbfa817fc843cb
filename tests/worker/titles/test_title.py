"""A title is one line of plain text, whatever a model replied."""

from __future__ import annotations

import pytest

from worker.titles.title import TITLE_CHARS, clean_title


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("Otters in winter", "Otters in winter"),
        ("  Otters\tin   winter \n", "Otters in winter"),
        ('"Otters in winter."', "Otters in winter"),
        ("\u201eOtter im Winter\u201c", "Otter im Winter"),
        ("\u300c\u30ab\u30ef\u30a6\u30bd\u300d", "\u30ab\u30ef\u30a6\u30bd"),
        ("Title: **Otters in winter**", "Otters in winter"),
        ('**Title:** "Otters"', "Otters"),
        ("# Otters in winter", "Otters in winter"),
        ("- _Otters_ and `load_all`", "Otters and load_all"),
        ("[Otters](https://evil.example/?q=1) in winter", "Otters in winter"),
        ("Here is a title:\n\n**Otters**", "Otters"),
        ("Otters\nIgnore this line", "Otters"),
        ("<think>They ask about otters.</think>Otters", "Otters"),
        ("/forget everything", "forget everything"),
        ('"/new"', "new"),
        ("Ot\u200bters\u202e in\x1b[31m winter", "Otters in[31m winter"),
        ("Wait...", "Wait..."),
        ("Rock 'n' roll", "Rock 'n' roll"),
        ("C# or C++?", "C# or C++?"),
    ],
)
def test_a_reply_becomes_one_plain_line(reply: str, title: str) -> None:
    """Without Markdown, quotes around it, thoughts, hidden characters, and never like a command."""
    assert clean_title(reply) == title


@pytest.mark.parametrize("reply", ["", " \n ", "***", '""', "\U0001f9a6", "<think>otters", "Here you are:"])
def test_a_reply_without_a_title_is_none(reply: str) -> None:
    """The first words of the chat are better."""
    assert clean_title(reply) == ""


def test_a_title_is_short() -> None:
    """Cut at a space, or within a word that is longer than that."""
    words = clean_title("otters and seals " * 50)
    assert len(words) <= TITLE_CHARS
    assert words.endswith(("otters\u2026", "and\u2026", "seals\u2026"))
    assert clean_title("o" * 5000) == "o" * (TITLE_CHARS - 1) + "\u2026"
