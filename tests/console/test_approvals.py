"""A question whether a tool may run, at a terminal and where nobody can be asked."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from console.chat.conversation import Talk
from console.chat.frames import Accepted, Question, Reply, Resumed, read_frame
from console.chat.screen import LastWordScreen, PlainScreen
from console.chat.state import Answer, Asked, ChatState, Past
from console.chat.thread import ChatThread, Ended

OPEN = Question("a", 2, 5, "0123", "open", "exec", "May I run `exec`?", '{\n  "command": "l\x1bs"\n}')
SAID_YES = Question("a", 3, 5, "0123", "yes", "exec", "Yes.", by="owner")
COMMAND = Reply("a", 4, 0, "I run `exec` now.", ("m2",), kind="command")
END = Reply("a", 5, 5, "done", ("m1",))


class Script(ChatThread):
    """A chat in which this happens, and nothing more. What was said is in `texts`."""

    def __init__(self, *news: Answer | Accepted | Asked | Past | Resumed) -> None:
        self.news = queue.SimpleQueue()
        self.texts: list[str] = []
        for one in (*news, Ended("the script ended")):
            self.news.put(one)

    def say(self, text: str) -> str:
        self.texts.append(text)
        return f"m{len(self.texts)}"


def answers(said: bool | None) -> Callable[[str], bool | None]:
    return lambda prompt: said


@pytest.mark.parametrize(("said", "texts"), [(True, ["go", "/yes 0123"]), (False, ["go", "/no 0123"]), (None, ["go"])])
def test_a_person_at_a_terminal_is_asked(
    capsys: pytest.CaptureFixture[str], said: bool | None, texts: list[str]
) -> None:
    """The answer is a command, so that it survives a lost connection; who says nothing may say it later."""
    script = Script(
        Accepted("m1", "a", 0, 5), Asked(OPEN), Asked(SAID_YES), Answer(COMMAND, ("m2",)), Answer(END, ("m1",))
    )
    assert Talk(script, PlainScreen(), own_only=True, decide=answers(said)).ask("go") == END
    assert script.texts == texts
    out, err = capsys.readouterr()
    assert "May I run `exec`?" in out
    assert out.strip().endswith("done")
    assert ("/yes 0123 or /no 0123" in err) == (said is None)


def test_without_a_terminal_it_is_told_that_the_turn_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is answered by itself, and no control code gets out; the last word is that of the turn."""
    script = Script(Accepted("m1", "a", 0, 5), Asked(OPEN), Answer(END, ("m1",)))
    assert Talk(script, LastWordScreen(as_json=False), own_only=True).ask("go") == END
    out, err = capsys.readouterr()
    assert out == "done\n"
    assert "waits for a yes to exec" in err
    assert "\x1b" not in err
    assert script.texts == ["go"]


def test_who_asks_one_thing_is_not_asked_about_another_turn() -> None:
    """Somebody else's question in the same chat is theirs."""
    other = Question("a", 2, 4, "9999", "open", "exec", "May I?")
    script = Script(Accepted("m1", "a", 0, 5), Asked(other), Answer(END, ("m1",)))
    Talk(script, PlainScreen(), own_only=True, decide=answers(True)).ask("go")
    assert script.texts == ["go"]


def test_a_chat_that_is_opened_while_its_turn_waits_asks_at_once() -> None:
    """And not when the question was answered meanwhile."""
    waits = Script(Past((OPEN,)), Resumed("a", 2, 5), Answer(END, ()))
    Talk(waits, PlainScreen(), own_only=False, decide=answers(False)).open(10)
    assert waits.texts == ["/no 0123"]
    answered = Script(Past((OPEN, SAID_YES)), Resumed("a", 3, 5), Answer(END, ()))
    Talk(answered, PlainScreen(), own_only=False, decide=answers(False)).open(10)
    assert answered.texts == []


def test_a_question_is_a_line_and_is_shown_once() -> None:
    """Also over a new connection."""
    state = ChatState("a")
    list(state.take(read_frame('{"type":"history","chat":"a","lines":[]}')))  # type: ignore[arg-type]
    assert list(state.take(OPEN)) == [Asked(OPEN)]
    assert list(state.take(OPEN)) == []
