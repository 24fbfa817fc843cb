"""What the agent says by its message tool, at a terminal and in a pipe."""

from __future__ import annotations

import json
import queue

import pytest

from console.chat.conversation import Talk
from console.chat.extras import is_silent, shown_text
from console.chat.frames import Accepted, File, Reply, Resumed
from console.chat.screen import LastWordScreen, PlainScreen
from console.chat.state import Answer, Past
from console.chat.thread import ChatThread, Ended
from console.chat.typed_line import by_number

SAID = Reply(
    "a",
    3,
    5,
    "Which \x1b[31mone?",
    kind="notice",
    said=True,
    media=(File("plan.pdf", 12_000),),
    buttons=("Red", "Blue"),
)
END = Reply("a", 4, 5, "", ("m1",))
SHOWN = "Which one?\n\n[file: plan.pdf, 11.7 KB; the chat page has it]\n\n1. Red\n2. Blue"


class Script(ChatThread):
    """A chat in which this happens, and nothing more."""

    def __init__(self, *news: Answer | Accepted | Past | Resumed) -> None:
        self.news = queue.SimpleQueue()
        for one in (*news, Ended("the script ended")):
            self.news.put(one)

    def say(self, text: str) -> str:
        return "m1"


def test_files_are_named_and_buttons_numbered() -> None:
    """A terminal cannot press them."""
    assert shown_text(Reply("a", 1, 1, "plain")) == "plain"
    assert shown_text(SAID).endswith("1. Red\n2. Blue")
    assert is_silent(END)
    assert not is_silent(SAID)
    assert not is_silent(Reply("a", 1, 1, "", kind="stopped"))


@pytest.mark.parametrize("screen", [PlainScreen(), LastWordScreen(as_json=False)])
def test_who_asks_one_thing_reads_what_was_said_for_it(
    capsys: pytest.CaptureFixture[str], screen: PlainScreen | LastWordScreen
) -> None:
    """Once, and no empty line for the reply that ends the turn; what was said in another turn is not ours."""
    other = Reply("a", 2, 4, "not ours", kind="notice", said=True)
    script = Script(Accepted("m1", "a", 0, 5), Answer(other, ()), Answer(SAID, ()), Answer(END, ("m1",)))
    assert Talk(script, screen, own_only=True).ask("hello") == END
    assert capsys.readouterr().out.strip() == SHOWN


def test_a_program_reads_it_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Words, names of files and labels each in their place."""
    LastWordScreen(as_json=True).reply(SAID)
    told = json.loads(capsys.readouterr().out)
    assert (told["text"], told["media"], told["buttons"]) == (SAID.text, ["plan.pdf"], ["Red", "Blue"])


@pytest.mark.parametrize(
    ("typed", "meant"),
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
def test_a_number_says_what_the_button_of_that_number_says(typed: str, meant: str) -> None:
    """And everything else is said as it was typed, also a number that no button has."""
    assert by_number(typed, SAID.buttons) == meant
    assert by_number(typed, ()) == typed


def test_a_number_counts_for_the_newest_message_of_the_agent_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the silent end of its turn nor a notice or the answer of a command comes between; a new message does.
    The person sees what was said for them, and a message that is not shown at all offers nothing."""
    beside = Reply("a", 5, 0, "a notice", kind="notice"), Reply("a", 6, 0, "the help", ("c1",), kind="command")
    lines = (SAID, END, *beside)
    talk = Talk(Script(Past(lines), Resumed("a", 6)), PlainScreen(), own_only=False)
    talk.open(6)
    assert talk.meant("2") == "Blue"
    assert capsys.readouterr().out.endswith("> Blue\n")
    hidden = Talk(Script(Past(lines), Resumed("a", 6)), PlainScreen(), own_only=False)
    hidden.open(0)
    assert hidden.meant("2") == "2"
    for last in (Reply("a", 7, 6, "well"), Reply("a", 7, 6, "A new one.", ("c2",), kind="command")):
        over = Talk(Script(Past((SAID, END, last)), Resumed("a", 7)), PlainScreen(), own_only=False)
        over.open(6)
        assert over.meant("2") == "2"
    live = Talk(
        Script(Accepted("m1", "a", 0, 5), Answer(SAID, ()), Answer(END, ("m1",))), PlainScreen(), own_only=False
    )
    live.ask("hello")
    assert live.meant("1") == "Red"
