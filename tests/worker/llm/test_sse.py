"""A stream is taken apart in whatever pieces it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.llm.clients.answer.events import EventReader


def read(*pieces: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.end()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),  # one blank belongs to the field, a second one to the data
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b": ping\n\ndata: a\n: ping\n\n:\n\n", [b"a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data\n\ndata:\n\n", [b"", b""]),
        (b"database: a\n\n", []),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_events_are_what_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    """Fields, comments, line ends, and the generous reading of an end without a blank line."""
    assert read(stream) == events


LINE = st.sampled_from([b"data: ab", b"data:c", b": note", b"", b"event: e", b'data: {"x": 1}'])


@given(st.lists(LINE), st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_where_it_is_cut_changes_nothing(lines: list[bytes], end: bytes, data: st.DataObject) -> None:
    """Also between CR and LF, and in the middle of a name."""
    stream = b"".join(line + end for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*pieces) == read(stream)


@pytest.mark.parametrize("piece", [b"data: xxxxxxxxxx", b"data: xxxxxxxxxx\n"])
def test_an_event_without_end_does_not_fill_the_memory(piece: bytes) -> None:
    """In one line or in many."""
    reader = EventReader(limit_bytes=100)
    for _ in range(5):
        reader.feed(piece)
    with pytest.raises(ValueError, match="too big"):
        reader.feed(piece * 20)
