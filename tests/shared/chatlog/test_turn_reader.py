"""What one request makes of the news of its chat."""

from __future__ import annotations

import pytest

from shared.chatlog.turn_reader import TurnReader
from shared.messages.live import DeltaEvent, JoinedEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine, WaitingCalls
from shared.messages.transcript import ToolCall
from shared.store.delivery.outbox import LogPosition, NumberedLine


def waiting(number: int = 1) -> TurnReader:
    made = TurnReader("m1", 0)
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
def test_the_running_text_is_the_newest_attempts(news: list[LiveEvent], text: str) -> None:
    """In the order of its numbers; behind a gap the next full text counts."""
    made = waiting()
    for one in news:
        made.on_event(one)
    assert made.text == text
    assert made.changed.is_set()


def test_what_came_before_its_number_was_known_is_not_lost() -> None:
    """A worker may be quicker than the answer of the ingest."""
    made = TurnReader("m1", 0)
    made.on_event(DeltaEvent(3, 1, 0, "quick", full=True))
    assert made.text == ""
    made.number = 3
    assert made.text == "quick"


def test_a_reader_that_comes_late_has_what_stands_on_screens() -> None:
    """From the record of the running turn; live events then go on after it. What it heard itself is newer."""
    made = waiting()
    shown = (DeltaEvent(1, 1, 0, "Once", full=True), DeltaEvent(1, 1, 1, " upon"))
    made.on_caught_up(LogPosition(0, 1, shown=shown))
    assert made.text == "Once upon"
    made.on_event(DeltaEvent(1, 1, 2, " a time"))
    made.on_caught_up(LogPosition(0, 1, shown=shown))
    assert made.text == "Once upon a time"
    after_its_calls = TurnReader("m2", 0, turn=1)
    after_its_calls.on_caught_up(LogPosition(0, 1, shown=shown))
    assert after_its_calls.text == ""


def test_a_message_that_joined_a_turn_follows_that() -> None:
    """Its own number is never shown text."""
    made = waiting(number=2)
    made.on_event(JoinedEvent(1, (2, 3)))
    made.on_event(DeltaEvent(1, 1, 0, "both", full=True))
    assert (made.turn, made.text) == (1, "both")


def test_lines_of_others_are_nobodys_answer() -> None:
    """Of another message, of another turn, of a person."""
    made = waiting()
    for one in (
        NumberedLine(1, UserLine(id="m1", text="hello")),
        line(2, "for another", in_reply_to=("m0",), kind="notice"),
        NumberedLine(3, OutboundMessage(content="beside another", turn=7, kind="notice", sent_by_tool=True)),
        line(4, "hm", kind="notice", sent_by_tool=True),
    ):
        assert made.on_line(one)
    assert (made.end, [one.content for one in made.lines]) == (None, ["for another", "hm"])


@pytest.mark.parametrize(("running", "lost"), [(None, True), (1, False), (2, False), (3, True)])
def test_a_message_whose_turn_is_over_without_a_line_for_it_is_lost(running: int | None, lost: bool) -> None:
    """Nothing runs, or a later turn does. An earlier one may be the one that it joined."""
    made = waiting(number=2)
    made.on_reading()
    made.on_caught_up(LogPosition(5, running))
    assert made.lost is lost


def test_nothing_is_given_up_before_the_whole_log_was_read() -> None:
    """The reader began after line 7. The store lost that line, and the answer got a number below it."""
    made = TurnReader("m1", 7)
    made.number = 2
    made.on_reading()
    made.on_caught_up(LogPosition(7, None))
    assert (made.lost, made.stale, made.seq) == (False, True, 0)
    made.on_reading()
    made.on_caught_up(LogPosition(7, None))
    assert made.lost


def test_a_message_that_was_not_accepted_when_the_log_was_read_is_not_lost() -> None:
    """The log says nothing of it yet."""
    made = TurnReader("m1", 0)
    made.on_reading()
    made.number = 1
    made.on_caught_up(LogPosition(0, None))
    assert not made.lost


async def test_what_a_program_submitted_is_answered_by_its_turn() -> None:
    """Whatever message began it; the line that asked the program is not the answer, also when all is read again."""
    calls = WaitingCalls(calls=(ToolCall("c1", "f", "{}"),))
    asked = line(3, "asks", in_reply_to=("m1",), kind="notice", calls=calls)
    made = TurnReader("m2", 3, 1)
    assert made.waiting
    made.seq = 0
    await made.read_line(asked)
    assert made.end is None
    await made.read_line(line(4, "asks again", in_reply_to=("m1",), kind="notice", calls=calls))
    assert made.end is not None
    assert made.end.content == "asks again"
    first = TurnReader("m1", 0)
    first.on_line(asked)
    assert first.end is asked.line
