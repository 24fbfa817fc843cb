"""A stream only grows, whatever becomes of the text that it follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.answer import PARAGRAPH
from gateway.channels.web.api.stream_buffer import StreamBuffer

UNKNOWN = "what else was said"


def played(*steps: str, end: str) -> str:
    tape = StreamBuffer()
    sent = "".join(tape.insert(step[1:]) if step.startswith("!") else tape.update(step) for step in steps)
    return sent + tape.finish(end, UNKNOWN if sent else end)


@pytest.mark.parametrize(
    ("steps", "end", "sent"),
    [
        ((), "all at once", "all at once"),
        ((), "", ""),
        (("a", "ab"), "ab", "ab"),
        (("a", "ab"), "abc", "abc"),
        (("ab \n",), "ab", "ab"),
        (("ab \n",), "ab\n\nwarned", "ab\n\nwarned"),
        (("ab \n", "ab \n c"), "ab \n c", "ab \n c"),
        (("ab", "", "a", "ab", "abc"), "abc", "abc"),
        (("a ",), "aa", "aa"),
        (("one\n\ntwo", "", "one\n\nthree"), "one\n\nthree", "one\n\ntwo\n\nthree"),
        (("ab", "", "x"), "xy", f"ab{PARAGRAPH}xy"),
        (("ab", "", "a"), "a", f"ab{PARAGRAPH}a"),
        (("look", "", "it is 4"), "it is 4", f"look{PARAGRAPH}it is 4"),
        (("!found",), "", "found"),
        (("look", "!found", "look"), "", f"look{PARAGRAPH}found"),
        (("look", "!found", "", "and so"), "and so", f"look{PARAGRAPH}found{PARAGRAPH}and so"),
        (("!one", "!two"), "three", f"one{PARAGRAPH}two{PARAGRAPH}three"),
    ],
)
def test_nothing_is_repeated_and_nothing_is_left_out(steps: tuple[str, ...], end: str, sent: str) -> None:
    """What begins as what was sent goes on there; anything else stands alone."""
    assert played(*steps, end=end) == sent


@given(st.lists(st.text("ab \n", max_size=4), max_size=8), st.text("ab \n", max_size=6))
def test_a_stream_ends_with_the_whole_answer(shown: list[str], end: str) -> None:
    """Word for word, however often text was taken back."""
    words = end.split()
    assert played(*shown, end=end).split()[-len(words) :] == words or not words


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=8))
def test_a_text_that_only_grows_is_sent_as_it_is(pieces: list[str]) -> None:
    """The usual case: one attempt, one round."""
    whole = "".join(pieces)
    assert played(*("".join(pieces[:n]) for n in range(len(pieces) + 1)), end=whole) == whole
