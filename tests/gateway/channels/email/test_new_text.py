"""The new words of a mail: no quote, no signature; but everything that could be meant."""

from __future__ import annotations

import pytest

from gateway.channels.email.parse import is_forward, new_text

OUTLOOK = """Yes please.

________________________________
From: Shoal <shoal@pond.example>
Sent: Monday, January 5, 2026 10:00
To: Anna <anna@people.example>
Subject: Re: Ponds

Shall I?
"""
GERMAN = """Ja bitte.

Von: Shoal <shoal@pond.example>
Gesendet: Montag, 5. Januar 2026 10:00
An: Anna <anna@people.example>
Betreff: AW: Teiche

Soll ich?
"""
OLD = """Yes please.

-----Original Message-----
From: Shoal [mailto:shoal@pond.example]
Sent: Monday, January 5, 2026 10:00 AM
To: Anna
Subject: Re: Ponds

Shall I?
"""
GMAIL = """Yes please.

On Mon, Jan 5, 2026 at 10:00 AM Shoal <shoal@pond.example>
wrote:

> Shall I?
>
> > ponds
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GMAIL, "Yes please."),
        (OUTLOOK, "Yes please."),
        (GERMAN, "Ja bitte."),
        (OLD, "Yes please."),
        ("Yes please.\n\n-- \nAnna\nPonds Ltd.\n", "Yes please."),
        ("Am 05.01.26 um 10:00 schrieb Shoal:\n> Soll ich?\n\nJa.\n", None),
        ("> Shall I?\n\nYes.\n\n> And then?\n\nNo.\n", None),
        ("/new\n", "/new"),
        ("\n\n", ""),
        ("> only a quote\n", None),
        ("From: here to there.\nIt is far.\n", None),
        ("a\n--\n" + "b\n" * 30, None),
    ],
)
def test_of_an_answer_the_new_words_are_read(text: str, words: str | None) -> None:
    """None: all of it, as it stands."""
    assert new_text(text, answers=True, forwards=False) == (text.strip("\n") if words is None else words)


def test_a_mail_that_answers_nothing_is_read_whole() -> None:
    """Whoever quotes something there means it."""
    for text in (GMAIL, OUTLOOK, "> a poem\n> in two lines"):
        assert new_text(text, answers=False, forwards=False) == text.strip()


@pytest.mark.parametrize("subject", ["Fwd: Ponds", "FW: Ponds", "WG: Teiche", "fwd:x", "TR : Étangs", "RV: Charcas"])
def test_what_is_forwarded_is_what_the_mail_is_about(subject: str) -> None:
    """By its subject, or by the line above it."""
    assert is_forward(subject)
    assert new_text(OUTLOOK, answers=True, forwards=True) == OUTLOOK.strip()
    for line in ("---------- Forwarded message ---------", "Begin forwarded message:"):
        text = f"What is this?\n\n{line}\nFrom: Bob\nDate: today\nSubject: x\n\n> hm\n-- \nBob"
        assert new_text(text, answers=True, forwards=False) == text


@pytest.mark.parametrize("subject", ["Ponds", "Re: Ponds", "Forward!", "Re: Fwd: Ponds", "Training: ponds", "Wgt: x"])
def test_other_subjects_forward_nothing(subject: str) -> None:
    """An answer to a forwarded mail is an answer."""
    assert not is_forward(subject)
