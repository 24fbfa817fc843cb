"""The text of a running turn, from live events that may be lost, late or of another attempt."""

from __future__ import annotations

from gateway.delivery.streamed_message import TurnText
from gateway.platform.protocol import Piece
from shared.messages.live import DeltaEvent, ProgressEvent, TurnEvent


def render(markdown: str) -> list[Piece]:
    """A message has 20 characters."""
    return [Piece(markdown[at : at + 20], markdown[at : at + 20]) for at in range(0, len(markdown), 20)]


def shown(stream: TurnText) -> str:
    piece = stream.preview(render)
    return "" if piece is None else piece.text


def delta(text: str, seq: int, *, attempt: int = 1, turn: int = 1, full: bool = False) -> DeltaEvent:
    return DeltaEvent(turn, attempt, seq, text, full)


def stream(*events: DeltaEvent | ProgressEvent | TurnEvent, progress: bool = True) -> TurnText:
    made = TurnText(progress=progress)
    for event in events:
        made.apply(event)
    return made


def test_text_grows_and_says_that_more_comes() -> None:
    """The first delta of an attempt is a full one."""
    assert shown(stream(TurnEvent(1, "started"))) == ""
    assert shown(stream(delta("One", 0, full=True), delta(" two", 1))) == "One two …"


def test_a_gap_is_healed_by_the_next_full_text() -> None:
    """Words without those before them would be another text."""
    made = stream(delta("One", 0, full=True), delta(" three", 2))
    assert shown(made) == "One …"
    made.apply(delta("One two three", 3, full=True))
    assert shown(made) == "One two three …"


def test_a_new_attempt_replaces_the_text_when_it_has_more() -> None:
    """Until then what stands there stays; late words of the old one are dropped."""
    made = stream(delta("Blue", 0, full=True), TurnEvent(1, "started", 2))
    assert shown(made) == "Blue …"
    made.apply(delta("Gr", 0, attempt=2, full=True))
    assert shown(made) == "Blue …"
    made.apply(delta("een", 1, attempt=2))
    made.apply(delta(" sky", 1, attempt=1))
    assert shown(made) == "Green …"


def test_another_gateways_longer_text_is_left_alone() -> None:
    """Neither a shorter text nor a line of progress takes its place."""
    made = TurnText(progress=True, streamed=(1, 5))
    for event in (TurnEvent(1, "started", 2), ProgressEvent(1, "grep"), delta("Gre", 0, attempt=2, full=True)):
        made.apply(event)
        assert shown(made) == ""
    made.apply(delta("en sky", 1, attempt=2))
    assert shown(made) == "Green sky …"
    made.apply(ProgressEvent(2, "grep"))
    assert shown(made) == "*`grep`* …"


def test_an_older_turn_changes_nothing_any_more() -> None:
    """And a newer one begins with nothing."""
    made = stream(delta("Old", 0, full=True), delta("New", 0, turn=2, full=True), delta("Old!", 1, full=True))
    assert (made.turn, shown(made)) == (2, "New …")


def test_progress_is_shown_until_words_come() -> None:
    """In a short line, as code, whatever is in it. Words that were seen stay, also when they are withdrawn."""
    made = stream(ProgressEvent(1, 'exec("`x`\n' + "y" * 200 + '")'))
    assert shown(made) == "*`exec(\"'x' yyyyyyyyy"[:20]
    made.apply(delta("Well", 0, full=True))
    assert shown(made) == "Well …"
    made.apply(delta("", 1, full=True))
    made.apply(ProgressEvent(1, "grep"))
    assert shown(made) == "Well …"
    assert shown(stream(ProgressEvent(1, "grep"))) == "*`grep`* …"
    assert shown(stream(ProgressEvent(1, "grep"), progress=False)) == ""


def test_a_text_longer_than_a_message_stands_as_its_first_piece() -> None:
    """It does not shrink again, and does not say that this message goes on."""
    made = stream(delta("x" * 19, 0, full=True))
    assert shown(made) == "x" * 19 if len("x" * 19 + " …") > 20 else "x" * 19 + " …"
    made.apply(delta("y" * 30, 1))
    assert shown(made) == "x" * 19 + "y"


def test_every_change_has_a_version() -> None:
    """By which it is known that there is something new to show."""
    made = stream(delta("One", 0, full=True))
    before = made.version
    made.apply(delta(" two", 1))
    assert made.version != before


def test_why_nothing_happens_is_shown_in_words_whatever_the_settings_say() -> None:
    """It is no step of the agent's; the first words of the answer replace it."""
    why = ProgressEvent(1, "trying again", note=True)
    for progress in (True, False):
        made = stream(why, progress=progress)
        assert shown(made) == "*trying again* …"
        made.apply(delta("At last", 0, full=True))
        assert shown(made).startswith("At last")
