"""A line of a chat's log as posts: pure, and the same at every try."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.delivery.line_posts import LineParts, replied_to, split_line, target_of
from gateway.platform.protocol import Abilities, Piece
from shared.ids import session_id
from shared.media.reference import MediaRef
from shared.messages.outbound import Approval, OutboundMessage, UserLine

REF = MediaRef("a" * 64, "txt", 5, "notes.txt")


def render(markdown: str) -> list[Piece]:
    """A message has 30 characters."""
    return [Piece(markdown[at : at + 30], markdown[at : at + 30]) for at in range(0, len(markdown), 30)]


def abilities(**more: Any) -> Abilities:
    return Abilities(run_modes=("webhook",), resend_guard="nothing", **{"media": True, "buttons": 3, **more})


def parts(content: str, *, age_s: float = 0.0, able: Abilities | None = None, **more: Any) -> LineParts:
    return split_line(OutboundMessage(content=content, turn=1, **more), render, able or abilities(), age_s=age_s)


def texts(found: LineParts) -> list[str]:
    return [piece.text for piece in found.pieces]


def test_text_comes_before_files_and_the_last_piece_has_the_buttons() -> None:
    """A file below a question would hide it."""
    found = parts("x" * 40, media=(str(REF),), buttons=("Tea", "Coffee"))
    assert (len(found.pieces), found.files, found.count) == (2, (REF,), 3)
    assert [len(found.buttons_of(part)) for part in range(3)] == [0, 2, 0]


def test_files_alone_have_the_buttons_on_the_last_one() -> None:
    """There is nothing else to put them on."""
    found = parts("", media=(str(REF), str(REF)), buttons=("Tea",))
    assert [len(found.buttons_of(part)) for part in range(2)] == [0, 1]


def test_where_there_are_no_buttons_or_files_their_words_are_in_the_text() -> None:
    """Nothing that was said is lost."""
    found = parts("Drink?", media=(str(REF),), buttons=("Tea", "Coffee"), able=abilities(media=False, buttons=0))
    assert "".join(texts(found)) == "Drink?\n\n[file: notes.txt]\n\n- Tea\n- Coffee"
    assert (found.files, found.buttons) == ((), ())


def test_more_buttons_than_the_platform_shows_are_all_words() -> None:
    """Not the first few of them."""
    found = parts("?", buttons=("1", "2", "3", "4"))
    assert found.buttons == ()
    assert "- 4" in "".join(texts(found))


def test_a_question_that_is_too_long_for_a_message_is_not_asked() -> None:
    """A yes to what was read in part only is no yes: it says so, where it can be asked, and offers a no."""
    asks = Approval(id="ab", state="open", tool="exec", arguments="$ " + "x" * 9_118)
    found = parts("May I run this, or that, or something else?", approval=asks, buttons=("/yes ab", "/no ab"))
    assert [(button.label, button.says) for button in found.buttons] == [("No", "/no ab")]
    text = "".join(texts(found))
    for word in ("`exec`", "9,120 characters", "too long to be shown here", "chat page", "`shoal chat`", "`/no ab`"):
        assert word in text
    assert "/yes" not in text
    assert "xxx" not in text


def test_a_question_has_yes_and_no_and_its_answer_has_none() -> None:
    """What is said names the question; without buttons the text says how."""
    asks = Approval(id="ab", state="open", tool="exec")
    found = parts("May I?", approval=asks, buttons=("/yes ab", "/no ab"))
    assert [(button.label, button.says) for button in found.buttons] == [("Yes", "/yes ab"), ("No", "/no ab")]
    without = parts("May I?", approval=asks, buttons=("/yes ab", "/no ab"), able=abilities(buttons=0))
    assert texts(without) == ["May I?"]
    answered = Approval(id="ab", state="yes", tool="exec")
    assert parts("Yes, it runs. And that was a long line.", approval=answered).count == 2
    assert parts("Yes.", approval=answered, buttons=("/yes ab",)).buttons == ()


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        ("reply", "Hi", ["Hi"]),
        ("notice", "Hi", ["Hi"]),
        ("command", "Hi", ["Hi"]),
        ("apology", "Sorry", ["Sorry"]),
        ("stopped", "So far", ["So far\n\n*Stopped.*"]),
        ("stopped", "", ["*Stopped.*"]),
        ("withdrawn", "gone", []),
        ("reply", " \n", []),
    ],
)
def test_each_kind_of_line_is_shown_as_what_it_is(kind: Any, content: str, shown: list[str]) -> None:
    """What has nothing to show has no posts."""
    assert texts(parts(content, kind=kind)) == shown


def test_a_persons_own_line_is_not_sent_to_them() -> None:
    """It stands there already."""
    assert split_line(UserLine(id="1", text="hello"), render, abilities(), age_s=0).count == 0


def test_a_reference_that_this_release_cannot_read_is_passed_over() -> None:
    """The text still comes."""
    assert parts("Hi", media=("media:new-form",)).count == 1


@pytest.mark.parametrize(
    ("age_s", "note"), [(700, "12 minutes"), (7200, "2 hours"), (200_000, "2 days"), (599, ""), (0, "")]
)
def test_a_late_reply_says_how_late_it_is(age_s: float, note: str) -> None:
    """From the platform's own limit on."""
    [only] = texts(parts("Hi", age_s=age_s, able=abilities(late_after_s=600.0)) if not note else _wide(age_s))
    assert only == (f"*This answer is {note} late.*\n\nHi" if note else "Hi")


def _wide(age_s: float) -> LineParts:
    line = OutboundMessage(content="Hi", turn=1)
    return split_line(line, lambda markdown: [Piece(markdown, markdown)], abilities(late_after_s=600.0), age_s=age_s)


@pytest.mark.parametrize("length", [1, 10, 29, 30, 31, 45, 59, 60, 61])
def test_the_mark_of_a_late_reply_moves_no_other_post(length: int) -> None:
    """A post that arrived before it was late is not sent again in another cut."""
    text = "".join(chr(97 + at % 26) for at in range(length))
    on_time, late = parts(text), parts(text, age_s=10_000.0)
    assert late.count == on_time.count
    assert late.pieces[:-1] == on_time.pieces[:-1]


def test_an_answer_names_its_message_and_a_schedule_none() -> None:
    """What nobody on the platform said cannot be quoted there."""
    assert replied_to(OutboundMessage(content="", turn=1, in_reply_to=("m1", "m2"))) == "m1"
    assert replied_to(OutboundMessage(content="", turn=1, in_reply_to=("m1",), reply_to="m9")) == "m9"
    for nobody in ((), ("child:abc",), ("a1b2:1700000000000",)):
        assert replied_to(OutboundMessage(content="", turn=1, in_reply_to=nobody)) is None
    assert replied_to(UserLine(id="1", text="")) is None


def test_a_place_is_read_back_from_its_session() -> None:
    """Also with a thread, where the platform has them."""
    place = target_of(session_id("slack", "C1:2#17.5"), {"a": "b"}, abilities(threads=True))
    assert (place.chat_id, place.thread, place.notes) == ("C1:2", "17.5", {"a": "b"})
    assert target_of(session_id("irc", "#pond"), {}, abilities()).chat_id == "#pond"
