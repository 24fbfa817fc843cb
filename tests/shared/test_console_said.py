"""What the agent says by its message tool, at a terminal and in a pipe."""

from __future__ import annotations

import json
import queue

import pytest

from shared.console.chat_extras import is_silent, shown_text
from shared.console.chat_frames import Accepted, File, Reply
from shared.console.chat_screen import LastWordScreen, PlainScreen
from shared.console.chat_state import Answer
from shared.console.chat_talk import Talk
from shared.console.chat_thread import ChatThread, Ended

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

    def __init__(self, *news: Answer | Accepted) -> None:
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
