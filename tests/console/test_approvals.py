"""A question whether a tool may run, at a terminal and where nobody can be asked."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from console.chat.client import ChatClient, ChatEnded
from console.chat.conversation import ChatDialog
from console.chat.screen import PlainScreen, Screen
from console.chat.state import ClientState, OpeningLines, ReplyEvent, decode_frame
from shared.messages.web import AcceptedFrame, ApprovalFrame, ResumedFrame
from tests.helpers.web_frames import approval_frame, reply_frame

OPEN = approval_frame("a", 2, 5, "0123", "open", "exec", "May I run `exec`?", '{\n  "command": "l\x1bs"\n}')
SENT_YES = approval_frame("a", 3, 5, "0123", "yes", "exec", "Yes.", by="owner")
COMMAND = reply_frame("a", 4, 0, "I run `exec` now.", ("m2",), kind="command")
END = reply_frame("a", 5, 5, "done", ("m1",))


class Script(ChatClient):
    """A chat in which this happens, and nothing more. What was said is in `texts`."""

    def __init__(self, *news: ReplyEvent | AcceptedFrame | ApprovalFrame | OpeningLines | ResumedFrame) -> None:
        self.events = queue.SimpleQueue()
        self.texts: list[str] = []
        for one in (*news, ChatEnded("the script ended")):
            self.events.put(one)

    def send_message(self, text: str, id: str | None = None) -> str:
        self.texts.append(text)
        return f"m{len(self.texts)}"


def answers(message: bool | None) -> Callable[[str], bool | None]:
    return lambda prompt: message


@pytest.mark.parametrize(
    ("message", "texts"), [(True, ["go", "/yes 0123"]), (False, ["go", "/no 0123"]), (None, ["go"])]
)
def test_a_person_at_a_terminal_is_asked(
    capsys: pytest.CaptureFixture[str], message: bool | None, texts: list[str]
) -> None:
    """The answer is a command, so that it survives a lost connection; who says nothing may say it later."""
    script = Script(
        AcceptedFrame("m1", "a", 0, 5),
        OPEN,
        SENT_YES,
        ReplyEvent(COMMAND, ("m2",)),
        ReplyEvent(END, ("m1",)),
    )
    assert ChatDialog(script, PlainScreen(), own_only=True, decide=answers(message)).ask("go") == END
    assert script.texts == texts
    out, err = capsys.readouterr()
    assert "May I run `exec`?" in out
    assert out.strip().endswith("done")
    assert ("/yes 0123 or /no 0123" in err) == (message is None)


def test_without_a_terminal_it_says_that_the_turn_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is answered by itself, and no control code gets out; the last word is that of the turn."""
    script = Script(AcceptedFrame("m1", "a", 0, 5), OPEN, ReplyEvent(END, ("m1",)))
    assert ChatDialog(script, Screen(), own_only=True).ask("go") == END
    out, err = capsys.readouterr()
    assert out == "done\n"
    assert "waits for a yes to exec" in err
    assert "\x1b" not in err
    assert script.texts == ["go"]


def test_who_asks_one_thing_is_not_asked_about_another_turn() -> None:
    """Somebody else's question in the same chat is theirs."""
    other = approval_frame("a", 2, 4, "9999", "open", "exec", "May I?")
    script = Script(AcceptedFrame("m1", "a", 0, 5), other, ReplyEvent(END, ("m1",)))
    ChatDialog(script, PlainScreen(), own_only=True, decide=answers(True)).ask("go")
    assert script.texts == ["go"]


def test_a_chat_that_is_opened_while_its_turn_waits_asks_at_once() -> None:
    """And not when the question was answered meanwhile."""
    waits = Script(OpeningLines((OPEN,)), ResumedFrame("a", 2, 5), ReplyEvent(END, ()))
    ChatDialog(waits, PlainScreen(), own_only=False, decide=answers(False)).open(10)
    assert waits.texts == ["/no 0123"]
    answered = Script(OpeningLines((OPEN, SENT_YES)), ResumedFrame("a", 3, 5), ReplyEvent(END, ()))
    ChatDialog(answered, PlainScreen(), own_only=False, decide=answers(False)).open(10)
    assert answered.texts == []


def test_a_question_is_a_line_and_is_shown_once() -> None:
    """Also over a new connection."""
    state = ClientState("a")
    list(state.on_frame(decode_frame('{"type":"history","chat":"a","lines":[],"more":false}')))  # type: ignore[arg-type]
    assert list(state.on_frame(OPEN)) == [OPEN]
    assert list(state.on_frame(OPEN)) == []
