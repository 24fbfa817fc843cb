"""What is shown of a running reply, whatever attempts, steps and gaps do to its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.chatlog.live_text import LiveText
from shared.messages.live import DeltaEvent


def delta(text: str, seq: int, *, attempt: int = 1, turn: int = 1, full: bool = False) -> DeltaEvent:
    return DeltaEvent(turn, attempt, seq, text, full)


LONG = [delta("Once upon", 0, full=True), delta(" a time", 1)]


@pytest.mark.parametrize(
    ("more", "text", "shown"),
    [
        ([delta("O", 0, attempt=2, full=True)], "O", "Once upon a time"),
        ([delta("Once upon a time", 0, attempt=2, full=True)], "Once upon a time", "Once upon a time"),
        ([delta("Once upon a", 0, attempt=2, full=True), delta(" time,", 1, attempt=2)], *["Once upon a time,"] * 2),
        ([delta("There was a king", 0, attempt=2, full=True)], "There was a king", "Once upon a time"),
        ([delta("There was a king ", 0, attempt=2, full=True)], *["There was a king "] * 2),
        ([delta("", 2, full=True)], "", "Once upon a time"),
        ([delta("It is 4", 2, full=True), delta(" and not 5", 3)], *["It is 4 and not 5"] * 2),
        ([delta("N", 0, turn=2, full=True)], "N", "N"),
    ],
)
def test_what_a_person_has_seen_stays_until_there_is_more(more: list[DeltaEvent], text: str, shown: str) -> None:
    """A worker died, a stream broke off, or the agent went on with its next step: the text begins again."""
    live = LiveText()
    for one in [*LONG, *more]:
        assert live.add(one)
    assert (live.text, live.shown) == (text, shown)


def test_another_gateways_text_stays_until_there_is_more() -> None:
    """It knows only how long that text is; of another turn it is nothing."""
    live = LiveText(1, floor=16)
    assert live.add(delta("Once upon a", 4, attempt=2, full=True))
    assert live.shown == ""
    assert live.add(delta(" time, ", 5, attempt=2))
    assert live.shown == "Once upon a time, "
    other = LiveText(1, floor=16)
    assert other.add(delta("N", 0, turn=2, full=True))
    assert other.shown == "N"


def test_an_attempt_that_goes_on_is_shown_from_its_first_letter() -> None:
    """On platforms too, also by a gateway that knows only how long the text was."""
    for live in (LiveText(), LiveText(1, floor=4)):
        live.add(delta("Once", 0, full=True))
        live.add(delta("Once u", 0, attempt=2, full=True))
        assert live.shown == "Once u"


DELTAS = st.builds(
    DeltaEvent, st.just(1), st.integers(1, 3), st.integers(0, 4), st.text("ab", max_size=4), st.booleans()
)


@given(st.lists(DELTAS, max_size=20))
def test_the_shown_text_never_gets_shorter(events: list[DeltaEvent]) -> None:
    """And it is always a text that some attempt had written."""
    live, before, written = LiveText(), "", {""}
    for event in events:
        live.add(event)
        written.add(live.text)
        assert live.shown == before or len(live.shown) > len(before)
        before = live.shown
        assert before in written
