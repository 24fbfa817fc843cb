"""The seam between what people have seen and what a successor's model adds: nothing twice, nothing missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.agent.model.seam import RESTART_CHARS, Seam

BEGUN = "Once upon a time there was a shoal of a thousand small fish, and not one"
WORDS = st.lists(st.from_regex(r"[a-z]{1,9}[.,]?", fullmatch=True), min_size=12, max_size=60, unique=True)
SPACES = st.sampled_from([" ", "  ", "\n", "\n\n"])


def join(begun: str, *deltas: str) -> str:
    """The whole text after these deltas."""
    seam = Seam(begun)
    new = "".join([*(seam.feed(delta) for delta in deltas), seam.flush()])
    return new if seam.restarted else begun + new


@pytest.mark.parametrize(
    ("begun", "more", "whole"),
    [
        (BEGUN, " of them in charge.", f"{BEGUN} of them in charge."),
        (BEGUN, "one of them in charge.", f"{BEGUN} of them in charge."),
        (BEGUN, "not one of them", f"{BEGUN} of them"),
        (BEGUN, f"{BEGUN} of them", f"{BEGUN} of them"),
        (BEGUN, "one", BEGUN),
        (BEGUN, "", BEGUN),
        (BEGUN, "Sure, here is the rest:\n\nnot one of them", f"{BEGUN} of them"),
        (BEGUN, "Continuing from where it stopped...\nof them", f"{BEGUN} of them"),
        (f"{BEGUN}:\n", "Here's the rest of the code:\n    return 1", f"{BEGUN}:\n    return 1"),
        (f"{BEGUN}. ", "Here is the moon.", f"{BEGUN}. Here is the moon."),
        (f"{BEGUN}. ", "Here is the moon:\nround", f"{BEGUN}. Here is the moon:\nround"),
        (f"{BEGUN}. ", "Sure", f"{BEGUN}. Sure"),
        (f"{BEGUN[:-2]}", "one of them", f"{BEGUN} of them"),
        (f"{BEGUN}.", "The end.", f"{BEGUN}. The end."),
        (f"{BEGUN}.\n\n", "one.\n\nThe end.", f"{BEGUN}.\n\nThe end."),
        (f"{BEGUN}.\n\n", "\n\nThe end.", f"{BEGUN}.\n\nThe end."),
        (f"{BEGUN}:\n", "    return 1", f"{BEGUN}:\n    return 1"),
        (BEGUN, f"{BEGUN[:RESTART_CHARS]}, said the eel.", f"{BEGUN[:RESTART_CHARS]}, said the eel."),
    ],
    ids=[
        *("goes on", "last word", "last words", "everything", "only the last word", "nothing", "announced"),
        *("announced without a word", "announced code", "no announcement", "no announcement of a rest", "one word"),
        "in a word",
        *("after a sentence", "repeats a paragraph", "repeats white space", "indented", "begins again in other words"),
    ],
)
def test_what_a_model_repeats_is_left_out(begun: str, more: str, whole: str) -> None:
    """However it goes on: right where it stopped, after some words again, or from the beginning."""
    assert join(begun, more) == whole
    assert join(begun, *more) == whole


@given(WORDS, SPACES, st.data())
def test_no_word_is_doubled_and_none_is_lost(words: list[str], space: str, data: st.DataObject) -> None:
    """Cut anywhere, with any number of words repeated, in deltas of any size."""
    whole = space.join(words)
    cut = data.draw(st.integers(RESTART_CHARS // 2, len(whole) - 1))
    begun = whole[:cut]
    starts = [at for at in range(cut) if not whole[at].isspace() and (at == 0 or whole[at - 1].isspace())]
    start = data.draw(st.sampled_from([starts[0], *(at for at in starts if at > cut - 200)]))
    more = whole[start:]
    sizes = st.integers(1, 20)
    deltas = []
    while more:
        size = data.draw(sizes)
        deltas.append(more[:size])
        more = more[size:]
    assert join(begun, *deltas) == whole


ANNOUNCING = st.sampled_from(
    ["Sure, here is the rest:", "Continuing...\n", "\n\n", "Here is the rest.\n", "continu", "ok "]
)


@given(st.text(max_size=300), st.lists(st.one_of(st.text(max_size=30), ANNOUNCING), max_size=8))
def test_it_does_not_matter_where_deltas_are_cut(begun: str, deltas: list[str]) -> None:
    """What is streamed is what is stored."""
    assert join(begun or "x", *deltas) == join(begun or "x", "".join(deltas))
