"""Thoughts are never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.agent.model.think import ThinkFilter, strip_think, visible_text

PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<THINK>", "<thi", "<", "nk>", "a", "secret ", "\n", "é", "</"])
)


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("plain", "plain"),
        ("<think>secret</think>answer", "answer"),
        ("<think>x</think><think>y</think> c", "c"),
        ("a <think>x</think>b", "a <think>x</think>b"),
        ("<think>line\n\nline</think>\n\nanswer\n", "answer"),
        ("answer <think>never closed", "answer <think>never closed"),
        ("<think>only thoughts", ""),
        ("stray</think> text", "text"),
        ("<THINK>x</Think>y", "y"),
        ("1 < 2 and <thin air> stays", "1 < 2 and <thin air> stays"),
        ("ends with <thi", "ends with <thi"),
        ("<<think>x</think>>", "<<think>x</think>>"),
    ],
)
def test_thoughts_are_cut_from_a_whole_text(text: str, visible: str) -> None:
    """Several blocks, line breaks, an unclosed block; nothing else is touched."""
    assert strip_think(text) == visible


@given(st.data(), PARTS)
def test_a_stream_shows_the_same_wherever_it_is_cut(data: st.DataObject, parts: list[str]) -> None:
    """A tag split over deltas is still a tag; what is shown is taken back only by a lone closing tag."""
    text = "".join(parts)
    think, shown, rest = ThinkFilter(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        new = think.feed(rest[:size])
        shown, think.recalled = ("" if think.recalled else shown) + new, False
        assert shown == think.visible
        rest = rest[size:]
    assert (shown + think.flush()).strip() == strip_think(text)


def test_text_is_shown_as_soon_as_it_is_clear() -> None:
    """Only what could become a tag waits."""
    think = ThinkFilter()
    deltas = ("<th", "ink>c", "</thin", "k>d", " <", "b", " </th", "in", "g>")
    assert [think.feed(delta) for delta in deltas] == ["", "", "", "d", " ", "<b", " ", "", "</thing>"]


def test_each_call_of_a_reply_may_begin_with_thoughts() -> None:
    """A reply that was cut by its length goes on in another call; a block that is open stays open."""
    assert visible_text(["one ", "<think>x</think>two"]) == "one two"
    assert visible_text(["<think>x", "y</think>two"]) == "two"
    assert visible_text(["plan, ", "more plan\n</think>\ntwo"]) == "two"
    assert visible_text(["<think>x</think>one ", "plan</think>two"]) == "one two"


def test_what_the_person_wrote_is_no_thought() -> None:
    """A model that repeats a block is quoting."""
    block = "<think>a plan</think>"
    assert visible_text([f"{block} is a block."], f"What is {block}?") == f"{block} is a block."
    assert visible_text([f"{block} is a block."], "What is that?") == "is a block."
