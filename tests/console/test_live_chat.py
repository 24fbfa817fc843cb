"""The prompt of `shoal chat`: keys go in by a pipe, and what is shown is read from the screen."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from console.chat.client import ChatClient, ChatEnded, ChatFailed, ClientEvent, Connected
from console.chat.live_chat import Gateway, LiveChat
from console.chat.local_commands import LOCAL_COMMANDS
from console.chat.prompt import HISTORY_BYTES, HISTORY_FILE, ChatCompleter, prepare_history
from console.chat.state import ChatNote, GrowingReply, MessageRefused, OpeningLines, ReplyEvent
from console.chat.upload import AttachFailed, media_address, upload
from shared.messages.outbound import WorkDone
from shared.messages.web import AcceptedFrame, ChatListFrame, ChatRow, ResumedFrame, TurnFrame
from tests.helpers.wait import eventually
from tests.helpers.web_frames import approval_frame, reply_frame

OPENED = (Connected("owner", ("help", "new"), files=1, file_bytes=100), OpeningLines(()), ResumedFrame("a", 0, None))
PASTE = "\x1b[200~%s\x1b[201~"


class FakeClient(ChatClient):
    """Notes what is sent; the test says what happens."""

    def __init__(self) -> None:
        self.events = queue.SimpleQueue()
        self.sent: list[tuple[str, tuple[str, ...]]] = []
        self.stopped: list[int | None] = []
        self.listed = 0
        self.acknowledged: list[int] = []

    def send_message(self, text: str, id: str | None = None, media: Sequence[str] = ()) -> str:
        self.sent.append((text, tuple(media)))
        return f"m{len(self.sent)}"

    def stop(self, turn: int | None = None) -> None:
        self.stopped.append(turn)

    def acknowledge(self, seq: int) -> None:
        self.acknowledged.append(seq)

    def list_chats(self) -> bool:
        self.listed += 1
        return True


class Keyboard:
    """A chat that runs, its keys and what it shows."""

    def __init__(self, chat: LiveChat, client: FakeClient, keys: PipeInput, running: asyncio.Task[str | None]) -> None:
        self.client, self.keys, self.running = client, keys, running
        self._chat = chat

    def happen(self, *events: ClientEvent) -> None:
        for event in events:
            self.client.events.put(event)

    async def type(self, keys: str) -> None:
        """Press keys when all that happened is shown."""
        await asyncio.sleep(0)
        self.keys.send_text(keys)

    async def status(self, text: str) -> None:
        """Wait for a status line with this text."""
        await eventually(lambda: text in self._chat.status(), what=text)

    async def sent(self, *texts: str) -> None:
        """Wait until these are all texts that were sent."""
        await eventually(lambda: [text for text, _ in self.client.sent] == list(texts), what=f"{texts}")


@pytest.fixture
async def keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Keyboard]:
    """An open chat `a` of a person with an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    client = FakeClient()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        chat = LiveChat(client, Gateway("ws://127.0.0.1:1/ws", "t"), "a", history=6)
        running = asyncio.create_task(chat.run())
        made = Keyboard(chat, client, keys, running)
        made.happen(*OPENED)
        await made.status("Enter sends")
        yield made
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, ChatFailed):
            await running


async def test_a_pasted_text_is_one_message_and_so_is_one_of_several_lines(keyboard: Keyboard) -> None:
    """Bracketed paste, Alt-Enter; Enter sends."""
    await keyboard.type(PASTE % "Traceback\n  line 1\n  line 2")
    await keyboard.type("\r")
    await keyboard.sent("Traceback\n  line 1\n  line 2")
    await keyboard.type("one\x1b\rtwo\r")
    await keyboard.sent("Traceback\n  line 1\n  line 2", "one\ntwo")


async def test_a_person_goes_on_while_an_answer_grows(keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    """The next message goes out at once; the status says where the first one is."""
    await keyboard.type("hello\r")
    await keyboard.sent("hello")
    keyboard.happen(AcceptedFrame("m1", "a", 2, 5))
    await keyboard.status("queued, 2 before it, 0 s")
    keyboard.happen(TurnFrame("a", 5, "started", 1), GrowingReply(5, "It *is*"))
    await keyboard.status("running, 0 s")
    await keyboard.type("and more\r")
    await keyboard.sent("hello", "and more")
    keyboard.happen(ReplyEvent(reply_frame("a", 2, 5, "It *is* so.\x1b[2J"), ("m1",)))
    await keyboard.status("queued")
    work = WorkDone(model="small\x1b[2J", tools=2, ms=3440)
    done = replace(reply_frame("a", 4, 6, "Done."), work=work, tokens=12952)
    keyboard.happen(ReplyEvent(done, ("m2",)))
    await keyboard.status("2 tools, 12,952 tokens, 3.4 s  ·  /help")
    await keyboard.type("more\r")
    await keyboard.sent("hello", "and more", "more")
    full = WorkDone(model="small", ms=1000, context=71_999, window=100_000)
    keyboard.happen(ReplyEvent(replace(reply_frame("a", 6, 7, "Done."), work=full), ("m3",)))
    await keyboard.status("small, 1.0 s, context 71 % full  ·  /help")
    shown = capsys.readouterr().out
    assert "It is so." in shown
    assert "\x1b[2J" not in shown


async def test_esc_and_ctrl_c_stop_the_turn_and_then_leave(keyboard: Keyboard) -> None:
    """Ctrl-C first empties the line, then stops, and leaves where there is nothing to stop."""
    await keyboard.type("a story\r")
    await keyboard.sent("a story")
    await keyboard.type("\x1b")
    await keyboard.status("stopping")
    await keyboard.type("half\x03\x03")
    await eventually(lambda: keyboard.client.stopped == [None, None])
    keyboard.happen(ReplyEvent(reply_frame("a", 2, 5, "It", kind="stopped"), ("m1",)))
    await keyboard.status("Enter sends")
    await keyboard.type("half\x03\x03")
    assert await asyncio.wait_for(keyboard.running, 30) is None
    assert keyboard.client.sent == [("a story", ())]


async def test_a_yes_for_good_is_a_letter_only_where_it_is_offered(
    keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere a is a message. An answer from another device says from which."""
    asked = approval_frame("a", 3, 5, "0123", "open", "exec", "May I run exec?")
    keyboard.happen(asked)
    await keyboard.status("may it run exec? y or n")
    await keyboard.type("a\r")
    await keyboard.sent("a")
    keyboard.happen(replace(approval_frame("a", 4, 5, "0123", "yes", "exec", "Yes.", by="owner"), where="phone"))
    keyboard.happen(replace(asked, seq=5, call="4567", standing=True))
    await keyboard.status("y, n or a (always)")
    await keyboard.type("a\r")
    await keyboard.sent("a", "/always 4567")
    assert "yes on a phone: exec" in "".join(capsys.readouterr())


async def test_a_request_is_answered_by_a_letter(keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    """Only while there is one: otherwise y is a message."""
    await keyboard.type("y\r")
    await keyboard.sent("y")
    keyboard.happen(approval_frame("a", 3, 5, "0123", "open", "exec", "May I run exec?"))
    await keyboard.status("may it run exec? y or n")
    await keyboard.type("n\r")
    await keyboard.sent("y", "/no 0123")
    keyboard.happen(
        approval_frame("a", 4, 5, "0123", "denied", "exec", "May I run exec?", by="owner"),
        ReplyEvent(reply_frame("a", 5, 5, "Then not."), ("m1", "m2")),
    )
    await keyboard.status("Enter sends")
    assert "May I run exec?" in capsys.readouterr().out


async def test_another_chat_is_chosen_from_the_list(keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    """By number or name; the list has titles."""
    await keyboard.type("/sessions\r")
    await eventually(lambda: keyboard.client.listed == 2)
    keyboard.happen(ChatListFrame((ChatRow("a", "Here", 0, False), ChatRow("b", "Tea\x1b[2J for two", 0, True))))
    keyboard.happen(ChatNote("listed"))
    await eventually(lambda: "/sessions NUMBER" in capsys.readouterr().out)
    await keyboard.type("/sessions no/slash\r/sessions a\r/sessions 2\r")
    assert await asyncio.wait_for(keyboard.running, 30) == "b"


async def test_a_refusal_and_a_lost_connection_are_reported(
    keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompt stays; the end of a chat ends it with its reason."""
    await keyboard.type("hello\r")
    await keyboard.sent("hello")
    keyboard.happen(MessageRefused("too long", "m1"), ChatNote("the connection is lost", lost=True))
    await keyboard.status("no connection")
    keyboard.happen(ResumedFrame("a", 3, 7))
    await keyboard.status("running")
    assert "(not sent: too long)" in capsys.readouterr().out
    keyboard.happen(ChatEnded("the token is gone"))
    with pytest.raises(ChatFailed, match="token is gone"):
        await asyncio.wait_for(keyboard.running, 30)


async def test_a_file_that_cannot_be_read_is_reported(keyboard: Keyboard, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is attached then."""
    await keyboard.type("/attach /nowhere/x.txt\r")
    await eventually(lambda: "not attached: '/nowhere/x.txt'" in capsys.readouterr().out)
    await keyboard.type("/attach\rhi\r")
    await keyboard.sent("hi")
    assert keyboard.client.sent == [("hi", ())]


async def test_what_was_typed_is_there_at_the_next_start(keyboard: Keyboard, tmp_path: Path) -> None:
    """In a file for its owner alone; ArrowUp brings it back."""
    await keyboard.type("first\r")
    await keyboard.sent("first")
    await keyboard.type("\x1b[A\r")
    await keyboard.sent("first", "first")
    file = tmp_path / HISTORY_FILE
    assert (file.stat().st_mode & 0o777, "+first" in file.read_text()) == (0o600, True)


def test_a_long_history_loses_its_older_half(tmp_path: Path) -> None:
    """Whole entries stay; a home that cannot be written keeps none."""
    file = tmp_path / "history"
    file.write_text("".join(f"\n# 2026-11-23\n+line {n}\n" for n in range(HISTORY_BYTES // 20)))
    assert prepare_history(file) == file
    text = file.read_text()
    assert len(text) <= HISTORY_BYTES // 2
    assert text.startswith("# 2026")
    assert text.endswith(f"+line {HISTORY_BYTES // 20 - 1}\n")
    assert prepare_history(Path("/proc/nowhere/history")) == Path("/dev/null")


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("/he", ["/help"]), ("/att", ["/attach "]), ("/sessions b", ["bees"]), ("/help b", []), ("b", []), ("", []),
        ("/attach {folder}/no", ["te.txt"]),
    ],
)  # fmt: skip
def test_tab_completes_commands_chats_and_paths(text: str, offered: list[str], tmp_path: Path) -> None:
    """What is at the beginning of a line, else nothing."""
    (tmp_path / "note.txt").touch()
    completer = ChatCompleter(lambda: ["/help", *LOCAL_COMMANDS], lambda: ["bees"])
    document = Document(text.format(folder=tmp_path))
    found = [one.text for one in completer.get_completions(document, CompleteEvent())]
    assert found == offered


def test_a_file_is_sent_to_where_the_socket_is(tmp_path: Path) -> None:
    """Also behind a path; too big a file is not read."""
    assert media_address("ws://h:1/ws", "a") == "http://h:1/media/a"
    assert media_address("wss://h/shoal/ws", "a") == "https://h/shoal/media/a"
    file = tmp_path / "big.txt"
    file.write_text("x" * 101)
    with pytest.raises(AttachFailed, match=r"big.txt has 101 B; the gateway takes 100 B"):
        upload("ws://127.0.0.1:1/ws", "t", "a", str(file), limit_bytes=100)
    with pytest.raises(AttachFailed, match=r"did not take big.txt"):
        upload("ws://127.0.0.1:1/ws", "t", "a", str(file), limit_bytes=0)
