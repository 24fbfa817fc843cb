"""Thoughts are never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.agent.model.stream import ThinkFilter, strip_think

PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<THINK>", "<thi", "<", "nk>", "a", "secret ", "\n", "é", "</"])
)


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("plain", "plain"),
        ("<think>secret</think>answer", "answer"),
        ("a <think>x</think>b<think>y</think> c", "a b c"),
        ("<think>line\n\nline</think>\n\nanswer\n", "answer"),
        ("answer <think>never closed", "answer"),
        ("<think>only thoughts", ""),
        ("stray</think> text", "stray text"),
        ("<THINK>x</Think>y", "y"),
        ("1 < 2 and <thin air> stays", "1 < 2 and <thin air> stays"),
        ("ends with <thi", "ends with <thi"),
        ("<<think>x</think>>", "<>"),
    ],
)
def test_thoughts_are_cut_from_a_whole_text(text: str, visible: str) -> None:
    """Several blocks, line breaks, an unclosed block; nothing else is touched."""
    assert strip_think(text) == visible


@given(st.data(), PARTS)
def test_a_stream_shows_the_same_wherever_it_is_cut(data: st.DataObject, parts: list[str]) -> None:
    """A tag split over deltas is still a tag, and what is shown never has to be taken back."""
    text = "".join(parts)
    think, shown, rest = ThinkFilter(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += think.feed(rest[:size])
        assert strip_think(text).startswith(shown.strip())
        rest = rest[size:]
    assert (shown + think.flush()).strip() == strip_think(text)


def test_text_is_shown_as_soon_as_it_is_clear() -> None:
    """Only what could become a tag waits."""
    think = ThinkFilter()
    assert [think.feed(delta) for delta in ("a <", "b", " <th", "ink>c", "</thin", "k>d")] == [
        "a ",
        "<b",
        " ",
        "",
        "",
        "d",
    ]
