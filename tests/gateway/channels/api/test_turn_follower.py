"""What one request makes of the news of its chat."""

from __future__ import annotations

import pytest

from gateway.channels.web.api.turn_follower import TurnFollower
from shared.messages.live import DeltaEvent, JoinedEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.delivery.fanout import ChatNews
from shared.store.delivery.outbox import NumberedLine


def waiting(number: int = 1) -> TurnFollower:
    made = TurnFollower("m1", 0, 0.0)
    made.number = number
    return made


def line(seq: int, content: str = "", **fields: object) -> NumberedLine:
    return NumberedLine(seq, OutboundMessage(content=content, turn=1, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("news", "text"),
    [
        ([DeltaEvent(1, 1, 0, "a", full=True), DeltaEvent(1, 1, 1, "b")], "ab"),
        ([DeltaEvent(1, 1, 0, "a", full=True), DeltaEvent(1, 1, 2, "c")], "a"),
        ([DeltaEvent(1, 1, 1, "b"), DeltaEvent(1, 1, 5, "abc", full=True), DeltaEvent(1, 1, 6, "d")], "abcd"),
        ([DeltaEvent(1, 1, 0, "a", full=True), DeltaEvent(1, 2, 0, "b", full=True), DeltaEvent(1, 1, 1, "c")], "b"),
        ([DeltaEvent(2, 1, 0, "of another turn", full=True)], ""),
        ([DeltaEvent(1, 1, 0, "a", full=True), DeltaEvent(1, 1, 1, "", full=True)], ""),
        ([TurnEvent(1, "started"), ProgressEvent(1, "looking")], ""),
    ],
)
def test_the_running_text_is_the_newest_attempts(news: list[ChatNews], text: str) -> None:
    """In the order of its numbers; behind a gap the next full text counts."""
    made = waiting()
    for one in news:
        made.on_event(one, 1.0)
    assert made.text == text
    assert made.changed.is_set()


def test_what_came_before_its_number_was_known_is_not_lost() -> None:
    """A worker may be quicker than the answer of the ingest."""
    made = waiting(number=0)
    made.on_event(DeltaEvent(3, 1, 0, "quick", full=True), 1.0)
    assert made.text == ""
    made.number = 3
    assert made.text == "quick"


def test_a_message_that_joined_a_turn_follows_that() -> None:
    """Its own number is never shown text."""
    made = waiting(number=2)
    made.on_event(JoinedEvent(1, (2, 3)), 1.0)
    made.on_event(DeltaEvent(1, 1, 0, "both", full=True), 1.0)
    assert (made.turn, made.text) == (1, "both")


def test_a_line_that_was_missed_is_noticed() -> None:
    """Only the very next line is taken as it is heard; what is read again changes nothing."""
    made = waiting()
    made.on_event(line(1, "hm", kind="notice", sent_by_tool=True), 1.0)
    assert not made.stale
    made.on_event(line(3, "end", in_reply_to=("m1",)), 1.0)
    assert (made.stale, made.end) == (True, None)
    for seq, one in enumerate(
        [line(1, "hm", kind="notice", sent_by_tool=True), line(2), line(3, in_reply_to=("m1",))], 1
    ):
        made.add_line(one)
        assert made.seq == seq
    assert made.end is not None
    assert [aside.text for aside in made.asides] == ["hm"]


def test_lines_of_others_are_nobodys_answer() -> None:
    """Of another message, of another turn, of a person."""
    made = waiting()
    made.add_line(NumberedLine(1, UserLine(id="m1", text="hello")))
    made.add_line(line(2, "for another", in_reply_to=("m0",)))
    made.add_line(NumberedLine(3, OutboundMessage(content="beside another", turn=7, kind="notice", sent_by_tool=True)))
    assert (made.end, made.asides, made.seq) == (None, [], 3)


def test_files_and_buttons_of_an_aside_are_named() -> None:
    """They cannot be had over the API."""
    made = waiting()
    ref = f"media:{'a' * 64}.pdf;10;report.pdf"
    made.add_line(line(1, "done", kind="notice", sent_by_tool=True, media=(ref, "odd"), buttons=("more",)))
    assert [aside.text for aside in made.asides] == ["done\n[file: report.pdf] [file: file] [more]"]
