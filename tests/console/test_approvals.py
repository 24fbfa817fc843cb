"""A question whether a tool may run, at a terminal and where nobody can be asked."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from console.chat.dialog import ChatDialog
from console.chat.screen import PlainScreen, Screen
from console.chat.state import ClientState, GrowingReply, OpeningLines, ReplyEvent, decode_frame
from console.chat.terminal import TerminalScreen
from shared.messages.web import AcceptedFrame, DeltaFrame, HistoryFrame, ResumedFrame
from shared.store.turns.approvals import question_line
from tests.console.scripted_chat import Script
from tests.helpers.parked import QUESTION
from tests.helpers.web_frames import approval_frame, reply_frame

OPEN = approval_frame("a", 2, 5, "0123", "open", "exec", "May I run `exec`?", '{\n  "command": "l\x1bs"\n}')
SENT_YES = approval_frame("a", 3, 5, "0123", "yes", "exec", "Yes.", by="owner")
COMMAND = reply_frame("a", 4, 0, "I run `exec` now.", ("m2",), kind="command")
END = reply_frame("a", 5, 5, "done", ("m1",))


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


def test_a_terminal_shows_all_of_a_long_question_and_after_what_it_is_asked() -> None:
    """Nothing is cut at the edge; a wrapped line has no number, so that its rest is no line of its own."""
    end = "rm -rf /the/end"
    card = "\n".join(["$ echo " + "x" * 300 + " a: 1", *(f"> echo {number}" for number in range(500)), f"> {end}"])
    line = question_line(replace(QUESTION, arguments=card, sources=("evil.example",)), wait_s=600)
    shown = StringIO()
    screen = TerminalScreen(Console(file=shown, width=60, highlight=False, markup=False, emoji=False))
    asks = approval_frame("a", 2, 5, "0123", "open", "exec", line.content, card)
    script = Script(AcceptedFrame("m1", "a", 0, 5), asks, ReplyEvent(END, ("m1",)))
    ChatDialog(script, screen, own_only=True, decide=answers(None)).ask("go")
    rows = [row.strip() for row in shown.getvalue().splitlines()]
    assert "After reading evil.example: may I run exec" in rows[0]
    assert "502 lines" in " ".join(rows[:3])
    assert [row for row in rows if row.startswith(("500│", "501│", "502│"))] == [
        "500│ > echo 498", "501│ > echo 499", f"502│ > {end}",
    ]  # fmt: skip
    assert "".join(rows).count("x" * 50) == 6


def test_the_text_before_a_question_stays_above_it() -> None:
    """A person reads there what the call is for; the text after the answer is shown from its first letter."""
    shown = StringIO()
    screen = TerminalScreen(Console(file=shown, width=60, highlight=False, markup=False, emoji=False))
    growing = GrowingReply(5, "I need the list of files for that.")
    script = Script(AcceptedFrame("m1", "a", 0, 5), growing, OPEN, ReplyEvent(END, ("m1",)))
    ChatDialog(script, screen, own_only=True, decide=answers(None)).ask("go")
    text = shown.getvalue()
    assert 0 <= text.find("I need the list of files") < text.find("May I run exec")
    state = ClientState("a")
    list(state.on_frame(HistoryFrame("a", [], more=False)))
    list(state.on_frame(DeltaFrame("a", 5, 1, 0, "I need the list of files for that.", full=True)))
    list(state.on_frame(OPEN))
    assert list(state.on_frame(DeltaFrame("a", 5, 2, 0, "Th", full=True))) == [GrowingReply(5, "Th")]


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
