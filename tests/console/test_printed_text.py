"""What the agent says by its message tool, at a terminal and in a pipe."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from console.chat.dialog import ChatDialog, button_by_number
from console.chat.screen import JsonScreen, PlainScreen, Screen, is_silent, shown_text
from console.chat.state import OpeningLines, ReplyEvent
from shared.messages.web import AcceptedFrame, ResumedFrame
from tests.console.scripted_chat import Script
from tests.helpers.web_frames import media_frame, reply_frame

SENT = reply_frame(
    "a",
    3,
    5,
    "Which \x1b[31mone?",
    kind="notice",
    sent_by_tool=True,
    media=(media_frame("plan.pdf", 12_000),),
    buttons=("Red", "Blue"),
)
END = reply_frame("a", 4, 5, "", ("m1",))
SHOWN = "Which one?\n\n[file: plan.pdf, 11.7 KB; the chat page has it]\n\n1. Red\n2. Blue"


def test_files_are_named_and_buttons_numbered() -> None:
    """A terminal cannot press them."""
    assert shown_text(reply_frame("a", 1, 1, "plain")) == "plain"
    assert shown_text(SENT).endswith("1. Red\n2. Blue")
    read = reply_frame("a", 1, 1, "plain", sources=("a page\x1b[2J", "mail of anna"))
    assert shown_text(read) == "plain\n\n(after reading a page, mail of anna)"
    assert is_silent(END)
    assert not is_silent(SENT)
    assert not is_silent(reply_frame("a", 1, 1, "", kind="stopped"))
    assert is_silent(replace(reply_frame("a", 2, 0, "", kind="withdrawn"), rates=1))


@pytest.mark.parametrize("screen", [PlainScreen(), Screen()])
def test_who_asks_one_thing_reads_what_was_written_for_it(capsys: pytest.CaptureFixture[str], screen: Screen) -> None:
    """Once, and no empty line for the reply that ends the turn; what was said in another turn is not ours."""
    other = reply_frame("a", 2, 4, "not ours", kind="notice", sent_by_tool=True)
    script = Script(
        AcceptedFrame("m1", "a", 0, 5), ReplyEvent(other, ()), ReplyEvent(SENT, ()), ReplyEvent(END, ("m1",))
    )
    assert ChatDialog(script, screen, own_only=True).ask("hello") == END
    assert capsys.readouterr().out.strip() == SHOWN


def test_a_program_reads_it_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Words, names of files and labels each in their place."""
    JsonScreen().reply(SENT)
    result = json.loads(capsys.readouterr().out)
    assert (result["text"], result["media"], result["buttons"]) == (SENT.text, ["plan.pdf"], ["Red", "Blue"])


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("2", "Blue"),
        (" 1 ", "Red"),
        ("3", "3"),
        ("0", "0"),
        ("02", "02"),
        ("\u0662", "\u0662"),
        ("2 two", "2 two"),
    ],
)
def test_a_number_says_what_the_button_of_that_number_says(typed: str, expected: str) -> None:
    """And everything else is said as it was typed, also a number that no button has."""
    assert button_by_number(typed, SENT.buttons) == expected
    assert button_by_number(typed, ()) == typed


def test_a_number_counts_for_the_newest_message_of_the_agent_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the silent end of its turn nor a notice or the answer of a command comes between; a new message does.
    The person sees what was said for them, and a message that is not shown at all offers nothing."""
    beside = (
        reply_frame("a", 5, 0, "a notice", kind="notice"),
        reply_frame("a", 6, 0, "the help", ("c1",), kind="command"),
    )
    lines = (SENT, END, *beside)
    talk = ChatDialog(Script(OpeningLines(lines), ResumedFrame("a", 6, None)), PlainScreen(), own_only=False)
    talk.open(6)
    assert talk.expand_number("2") == "Blue"
    assert capsys.readouterr().out.endswith("> Blue\n")
    hidden = ChatDialog(Script(OpeningLines(lines), ResumedFrame("a", 6, None)), PlainScreen(), own_only=False)
    hidden.open(0)
    assert hidden.expand_number("2") == "2"
    for last in (reply_frame("a", 7, 6, "well"), reply_frame("a", 7, 6, "A new one.", ("c2",), kind="command")):
        over = ChatDialog(
            Script(OpeningLines((SENT, END, last)), ResumedFrame("a", 7, None)), PlainScreen(), own_only=False
        )
        over.open(6)
        assert over.expand_number("2") == "2"
    live = ChatDialog(
        Script(AcceptedFrame("m1", "a", 0, 5), ReplyEvent(SENT, ()), ReplyEvent(END, ("m1",))),
        PlainScreen(),
        own_only=False,
    )
    live.ask("hello")
    assert live.expand_number("1") == "Red"
