"""Frames of a long connection. `test_sdk.py` holds them against the vendor's own class."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.feishu.frames import (
    DATA,
    FeishuFrame,
    FramePieces,
    UnreadableFrame,
    ping,
    read_frame,
    write_frame,
)

words = st.text(st.characters(codec="utf-8"), max_size=20)
frames = st.builds(
    FeishuFrame,
    seq_id=st.integers(0, (1 << 64) - 1),
    log_id=st.integers(0, (1 << 64) - 1),
    service=st.integers(-(1 << 31), (1 << 31) - 1),
    method=st.integers(-(1 << 31), (1 << 31) - 1),
    headers=st.lists(st.tuples(words, words), max_size=5).map(tuple),
    payload_encoding=words,
    payload_type=words,
    payload=st.binary(max_size=300),
    log_id_new=words,
)


def test_a_ping_has_these_bytes() -> None:
    """As the vendor's library writes it."""
    assert write_frame(ping(33554678)) == bytes.fromhex(
        "08001000" + "18f6818010" + "2000" + "2a0c" + "0a0474797065120470696e67"
    )


@given(frames)
def test_a_frame_is_read_as_it_was_written(frame: FeishuFrame) -> None:
    """Whatever is in it."""
    assert read_frame(write_frame(frame)) == frame


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_known_error(data: bytes) -> None:
    """Nothing else goes up."""
    with contextlib.suppress(UnreadableFrame):
        read_frame(data)


@given(frames, st.data())
def test_a_frame_that_is_cut_off_is_one_or_a_known_error(frame: FeishuFrame, draw: st.DataObject) -> None:
    """At any byte."""
    data = write_frame(frame)
    with contextlib.suppress(UnreadableFrame):
        read_frame(data[: draw.draw(st.integers(0, len(data)))])


def test_fields_that_are_new_are_passed_over() -> None:
    """Of every kind."""
    new = b"\x78\x07" + b"\x81\x01" + b"8" * 8 + b"\x7a\x03abc" + b"\x85\x01" + b"4444"
    assert read_frame(write_frame(ping(7)) + new) == ping(7)


@pytest.mark.parametrize("data", [b"\x0b", b"\x0e", b"\x42\xff\x01a", b"\xff" * 11, b"\x08", b"\x2a\x03\x0a\x01\xff"])
def test_these_are_no_frames(data: bytes) -> None:
    """Groups, lengths behind the end, endless numbers, text that is none."""
    with pytest.raises(UnreadableFrame):
        read_frame(data)


def piece(id: str, number: int, total: int, payload: bytes) -> FeishuFrame:
    headers = (("message_id", id), ("sum", str(total)), ("seq", str(number)))
    return FeishuFrame(method=DATA, headers=headers, payload=payload)


def test_pieces_are_put_together_in_their_order() -> None:
    """However they come, those of two messages mixed, one of them twice."""
    pieces = FramePieces()
    assert pieces.whole(piece("a", 2, 3, b"c")) is None
    assert pieces.whole(piece("b", 0, 2, b"x")) is None
    assert pieces.whole(piece("a", 0, 3, b"a")) is None
    assert pieces.whole(piece("a", 0, 3, b"a")) is None
    assert pieces.whole(piece("a", 1, 3, b"b")) == b"abc"
    assert pieces.whole(piece("b", 1, 2, b"y")) == b"xy"
    assert pieces.whole(piece("c", 0, 1, b"alone")) == b"alone"
    assert pieces.whole(FeishuFrame(payload=b"no headers")) == b"no headers"


def test_messages_of_which_pieces_are_missing_do_not_stay_for_ever() -> None:
    """The oldest is let go; Feishu tells it again."""
    pieces = FramePieces(most=2)
    for id in ("a", "b", "c"):
        assert pieces.whole(piece(id, 0, 2, b"0")) is None
    assert pieces.whole(piece("c", 1, 2, b"1")) == b"01"
    assert pieces.whole(piece("a", 1, 2, b"1")) is None


@pytest.mark.parametrize(("number", "total"), [("2", "2"), ("0", "20000"), ("x", "2"), ("-1", "2"), ("0", "9" * 9)])
def test_a_number_that_cannot_be_is_no_piece(number: str, total: str) -> None:
    """It must not cost memory."""
    headers = (("message_id", "a"), ("sum", total), ("seq", number))
    with pytest.raises(UnreadableFrame):
        FramePieces().whole(FeishuFrame(headers=headers))
