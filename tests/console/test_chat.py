from __future__ import annotations

import asyncio
import io
import json
import queue
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from websockets.asyncio.server import ServerConnection, serve

from console.chat.client import ChatClient, ChatEnded, ChatFailed, ClientEvent, Connected, Interrupted
from console.chat.command import find_target
from console.chat.dialog import SILENCE_S, ChatDialog, UserLeft, unknown_command
from console.chat.screen import JsonScreen, PlainScreen, Screen
from console.chat.state import (
    ChatEvent,
    ChatNote,
    ClientState,
    GrowingReply,
    MessageRefused,
    OpeningLines,
    ReplyEvent,
    ServerFrame,
    decode_frame,
)
from console.chat.terminal import SafeMarkdown, TerminalScreen
from shared.clock import machine_timezone
from shared.errors import SettingsError
from shared.messages.web import (
    AcceptedFrame,
    AckFrame,
    ChatListFrame,
    ClientFrame,
    DeltaFrame,
    ErrorFrame,
    MessageFrame,
    ProgressFrame,
    ReadHistoryFrame,
    ReplyFrame,
    ResumedFrame,
    ResumeFrame,
    SendFrame,
    StopFrame,
)
from shared.settings import load
from shared.terminal_text import clean, duration, size
from tests.console.scripted_chat import Script
from tests.gateway.harness import TOKENS, gateway, worker
from tests.helpers.wait import eventually
from tests.helpers.web_frames import message_frame, reply_frame

HISTORY = b'{"type":"history","chat":"a","lines":[%s],"more":false}'
NOTHING = HISTORY % b""
LINE_3 = (
    HISTORY
    % b'{"type":"reply","chat":"a","seq":3,"turn":2,"text":"old","html":"","in_reply_to":[],"kind":"reply","at":0}'
)


def opened(history: bytes = NOTHING) -> ClientState:
    """A chat whose history came."""
    state = ClientState("a")
    assert state.opening_frames() == [ReadHistoryFrame("a")]
    frame = decode_frame(history)
    assert frame is not None
    take(state, frame)
    return state


def take(state: ClientState, *frames: ServerFrame) -> list[ChatEvent | ClientFrame]:
    return [one for frame in frames for one in state.on_frame(frame)]


def reply(seq: int, turn: int, *ids: str, text: str = "yes", kind: str = "reply") -> ReplyFrame:
    return reply_frame("a", seq, turn, text, ids, kind)


def test_a_chat_opens_with_its_newest_lines_and_goes_on_after_them() -> None:
    """The history says where the chat stands; nothing old is shown twice."""
    state = ClientState("a")
    frame = decode_frame(LINE_3)
    assert frame is not None
    past, resume = take(state, frame)
    assert isinstance(past, OpeningLines)
    assert [line.text for line in past.lines] == ["old"]
    assert resume == ResumeFrame("a", 3)
    assert take(state, reply(3, 2)) == []


def test_what_a_newer_gateway_says_is_passed_over() -> None:
    """Unknown frames, unknown fields and unknown lines end nothing."""
    assert decode_frame('{"type":"confetti","chat":"a"}') is None
    assert decode_frame("no json") is None
    assert decode_frame('{"type":"progress","chat":"a","turn":1,"text":"x","colour":"red"}') == ProgressFrame(
        "a", 1, "x"
    )
    state = opened(
        HISTORY % b'{"type":"poll","seq":1},{"type":"message","chat":"a","seq":2,"id":"i","text":"t","at":0}'
    )
    assert state.opening_frames() == [ResumeFrame("a", 2)]


def test_a_message_is_sent_again_with_its_id_until_it_was_accepted() -> None:
    """docs/web.md: keep a message until `accepted` came; also one said before there was a connection."""
    state = ClientState("a")
    assert state.send_message("m1", "one") == []
    [_, *sent] = take(state, decode_frame(NOTHING))  # type: ignore[arg-type]
    assert sent == [ResumeFrame("a", 0), SendFrame("m1", "a", "one")]
    assert state.send_message("m2", "two") == [SendFrame("m2", "a", "two")]
    assert state.opening_frames() == [ResumeFrame("a", 0), SendFrame("m1", "a", "one"), SendFrame("m2", "a", "two")]
    take(state, AcceptedFrame("m1", "a", 0, 1), message_frame("a", 1, "m2", "two"))
    assert state.opening_frames() == [ResumeFrame("a", 1)], "a line in the log is as good as `accepted`"
    assert state.unaccepted == {}


def test_every_line_is_shown_once_and_in_order() -> None:
    """Whatever a reconnect brings again is known by its number."""
    state = opened()
    state.send_message("m1", "one")
    assert take(state, reply(2, 1, "m1")) == [ReplyEvent(reply(2, 1, "m1"), ("m1",))]
    assert take(state, reply(2, 1, "m1"), message_frame("a", 1, "m1", "one")) == []
    assert state.opening_frames() == [ResumeFrame("a", 2)]


def test_frames_of_other_chats_are_not_for_us() -> None:
    """A socket may be shown several chats; this client asked for one."""
    state = opened()
    assert take(state, message_frame("b", 7, "x", "text"), DeltaFrame("b", 1, 1, 0, "text", full=True)) == []
    assert state.opening_frames() == [ResumeFrame("a", 0)]


def test_text_grows_by_the_deltas_of_the_highest_attempt_in_their_order() -> None:
    """A gap keeps what is shown until a full one, a new attempt until it has more; an old one is too late."""
    state = opened()

    def shown(attempt: int, seq: int, text: str, *, full: bool = False, turn: int = 1) -> str | None:
        events = take(state, DeltaFrame("a", turn, attempt, seq, text, full))
        assert all(isinstance(event, GrowingReply) for event in events)
        return events[0].text if events and isinstance(events[0], GrowingReply) else None

    assert shown(1, 5, "x") is None, "somebody who comes in the middle waits for a full one"
    assert shown(1, 6, "ab", full=True) == "ab"
    assert shown(1, 7, "c") == "abc"
    assert shown(1, 7, "c") is None
    assert shown(1, 9, "e") is None
    assert shown(1, 10, "abcdef", full=True) == "abcdef"
    assert shown(1, 11, "g") == "abcdefg"
    assert shown(2, 3, "z") is None
    assert shown(2, 4, "new", full=True) == "abcdefg"
    assert shown(1, 12, "h") is None
    assert shown(2, 5, "words") == "newwords"
    take(state, reply(1, 1))
    assert shown(2, 6, "late", full=True) is None
    assert shown(1, 0, "next", full=True, turn=2) == "next"


def test_progress_of_an_answered_turn_is_not_shown() -> None:
    """What comes late is about something that is over."""
    state = opened()
    take(state, reply(1, 1))
    assert take(state, ProgressFrame("a", 1, "late"), ProgressFrame("a", 2, "now")) == [ProgressFrame("a", 2, "now")]


def test_an_answer_is_known_by_its_ids_or_by_its_turn() -> None:
    """The apology for a message that could not be read names no ids. A notice answers nothing."""
    state = opened()
    state.send_message("m1", "one")
    state.send_message("m2", "two")
    take(state, AcceptedFrame("m1", "a", 0, 7), AcceptedFrame("m2", "a", 1, 8))
    assert take(state, reply(1, 7, kind="notice")) == [ReplyEvent(reply(1, 7, kind="notice"), ())]
    assert take(state, reply(2, 7, kind="apology")) == [ReplyEvent(reply(2, 7, kind="apology"), ("m1",))]
    assert take(state, reply(3, 8, "m2")) == [ReplyEvent(reply(3, 8, "m2"), ("m2",))]


def test_a_stop_names_its_turn_and_is_sent_again_when_it_may_work() -> None:
    """Before `accepted` the turn has no number; behind others it is not its turn yet; a connection may forget it."""
    state = opened()
    assert state.stop() == []
    assert state.stop(4) == [StopFrame("a", 4)], "a turn that ran when the chat was opened"
    assert state.opening_frames() == [ResumeFrame("a", 0)], "nothing of ours runs"
    state.send_message("m1", "one")
    assert state.stop() == []
    assert take(state, AcceptedFrame("m1", "a", 1, 6))[1:] == [StopFrame("a", 6)]
    assert take(state, reply(1, 5))[1:] == [StopFrame("a", 6)]
    assert state.opening_frames() == [ResumeFrame("a", 1), StopFrame("a", 6)]
    assert take(state, reply(2, 6, "m1", kind="stopped"))[1:] == []
    assert state.opening_frames() == [ResumeFrame("a", 2)]
    state.send_message("m2", "two")
    assert take(state, AcceptedFrame("m2", "a", 0, 7))[1:] == [], "the next one is not meant"


@pytest.mark.parametrize("code", ["rate_limited", "busy", "overloaded", "unavailable"])
def test_not_now_means_again_later_with_the_same_id(code: str) -> None:
    """The message stays ours until it is durable."""
    state = opened()
    state.send_message("m1", "one")
    assert take(state, ErrorFrame(code, "later", "m1", "a", 1.5)) == [ChatNote("later", 1.5)]
    assert state.delayed_frames() == [SendFrame("m1", "a", "one")]
    unread = ClientState("a")
    assert take(unread, ErrorFrame(code, "later", None, "a")) == [ChatNote("later", 2.0)]
    assert unread.delayed_frames() == [ReadHistoryFrame("a")]


@pytest.mark.parametrize("code", ["inbox_full", "too_big", "bad_chat"])
def test_a_refused_message_is_the_persons_again(code: str) -> None:
    """It is not sent again behind their back; a refusal of something that was accepted says nothing."""
    state = opened()
    state.send_message("m1", "one")
    assert take(state, ErrorFrame(code, "no", "m1", "a", 10)) == [MessageRefused("no", "m1")]
    assert state.opening_frames() == [ResumeFrame("a", 0)]
    assert take(state, ErrorFrame(code, "no", "m1", "a")) == []


def test_a_command_is_answered_in_the_middle_of_a_turn_that_goes_on() -> None:
    """It has no turn: nothing of the running answer is lost, and Ctrl-C stops what runs and not the command."""
    state = opened()
    state.send_message("m1", "tell me")
    take(state, AcceptedFrame("m1", "a", 0, 1), DeltaFrame("a", 1, 1, 0, "One ", full=True))
    state.send_message("c1", "/status")
    [answer] = take(state, reply(2, 0, "c1", kind="command"))
    assert isinstance(answer, ReplyEvent)
    assert answer.ids == ("c1",)
    take(state, AcceptedFrame("c1", "a", 0, 0))
    assert take(state, DeltaFrame("a", 1, 1, 1, "two")) == [GrowingReply(1, "One two")]
    assert state.stop() == [StopFrame("a", 1)]


def test_a_command_that_comes_before_its_receipt_leaves_nothing_to_stop() -> None:
    """Turn 0 is no turn, whichever of the two is first."""
    state = opened()
    state.send_message("c1", "/help")
    take(state, AcceptedFrame("c1", "a", 0, 0))
    assert state.stop() == []
    take(state, reply(2, 0, "c1", kind="command"))
    assert state.unaccepted == {}


def test_a_conversation_that_is_ended_takes_its_questions_along() -> None:
    """The answer of `/new` names what it dropped: nobody waits for those, or shows more of the running turn."""
    state = opened()
    for turn, id in ((1, "m1"), (2, "m2")):
        state.send_message(id, "tell me")
        take(state, AcceptedFrame(id, "a", turn - 1, turn))
    take(state, DeltaFrame("a", 1, 1, 0, "One ", full=True))
    [answer] = take(state, reply(4, 2, "c9", "m1", "m2", kind="command"))
    assert isinstance(answer, ReplyEvent)
    assert answer.ids == ("m1", "m2")
    assert take(state, DeltaFrame("a", 1, 1, 1, "two"), ProgressFrame("a", 1, "still at it")) == []
    assert state.stop() == []


def test_after_a_lost_tail_what_has_no_answer_is_sent_again() -> None:
    """Redis came back with an older copy: the message is known there and is one turn, or it is gone and needed."""
    state = opened(LINE_3)
    for id, seq, turn in (("m1", 4, 3), ("m2", 5, 4)):
        state.send_message(id, "text")
        take(state, AcceptedFrame(id, "a", 0, turn), message_frame("a", seq, id, "text"))
    assert state.opening_frames() == [ResumeFrame("a", 5)]
    again: list[MessageFrame | ReplyFrame] = [message_frame("a", 1, "x", "text"), reply(2, 3, "m1")]
    events = take(state, *again, ResumedFrame("a", 2, None, reset=True))
    assert events == [
        ChatNote("the store lost the newest lines of this chat"),
        ReplyEvent(again[1], ("m1",)),  # type: ignore[arg-type]
        SendFrame("m2", "a", "text"),
        ResumedFrame("a", 2, None, reset=True),
    ]
    assert take(state, message_frame("a", 3, "m2", "text")) == [message_frame("a", 3, "m2", "text")], (
        "numbers are used again"
    )


def test_lines_that_got_the_numbers_of_lost_lines_are_shown() -> None:
    """The client holds lines 1 and 2; the store lost line 2, and lines 2 and 3 are others now."""
    first, lost, second, third = (
        MessageFrame("a", seq, id, "text", at=0, mark=mark)
        for seq, id, mark in ((1, "x", 11), (2, "y", 12), (2, "z", 22), (3, "w", 23))
    )
    state = opened()
    assert take(state, first, lost) == [first, lost]
    assert state.opening_frames() == [ResumeFrame("a", 2, 12)]
    reset = ResumedFrame("a", 3, None, reset=True, mark=23)
    note = ChatNote("the store lost the newest lines of this chat")
    assert take(state, first, second, third, reset) == [second, third, note, reset]
    assert state.opening_frames() == [ResumeFrame("a", 3, 23)]
    assert take(state, first, second, third) == []


def test_what_was_seen_is_acknowledged_once_on_each_connection() -> None:
    """A lost connection may have taken the frame along. After a lost tail the numbers begin again."""
    state = opened(LINE_3)
    assert state.acknowledge(3) == [AckFrame("a", 3)]
    assert state.acknowledge(3) == state.acknowledge(2) == []
    assert state.opening_frames() == [ResumeFrame("a", 3), AckFrame("a", 3)]
    take(state, ResumedFrame("a", 1, None, reset=True))
    assert state.acknowledge(2) == [AckFrame("a", 2)]


# The client, against a gateway that behaves as it is told.


Behaviour = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def server(*connections: Behaviour) -> AsyncIterator[str]:
    """Each new connection gets the next behaviour, after hello and welcome."""
    waiting = iter(connections)

    async def handle(socket: ServerConnection) -> None:
        behaviour = next(waiting)
        hello = json.loads(await socket.recv())
        assert (hello["type"], hello["token"], hello.get("timezone", "")) == ("hello", "t", machine_timezone())
        await socket.send('{"type":"welcome","principal":"owner","version":"0"}')
        await behaviour(socket)

    async with serve(handle, "127.0.0.1", 0) as listening:
        yield f"ws://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}/ws"


class Chatting:
    """A client in a chat, and everything that came out of it."""

    def __init__(self, url: str, token: str = "t", **options: Any) -> None:
        self.client = ChatClient(url, token, "a", **options)
        self._received: list[ClientEvent] = []

    async def __aenter__(self) -> Chatting:
        self.client.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.client.__exit__, None, None, None)  # the server here ends its side meanwhile

    @property
    def received(self) -> list[ClientEvent]:
        while not self.client.events.empty():
            self._received.append(self.client.events.get())
        return self._received

    async def reports(self, kind: type[ClientEvent]) -> None:
        await eventually(lambda: any(isinstance(one, kind) for one in self.received))

    async def end(self) -> str:
        """Why it ended."""
        await self.reports(ChatEnded)
        [reason] = [one.reason for one in self.received if isinstance(one, ChatEnded)]
        return reason


async def accept(socket: ServerConnection, id: str) -> None:
    await socket.send(json.dumps({"type": "accepted", "id": id, "chat": "a", "ahead": 0, "turn": 1}))


async def test_a_message_that_was_not_accepted_goes_out_again_on_the_next_connection() -> None:
    """The gateway dies between taking the frame and answering it; the id is the same."""
    seen: list[dict[str, Any]] = []

    async def opens(socket: ServerConnection) -> None:
        assert json.loads(await socket.recv())["type"] == "history"
        await socket.send(NOTHING.decode())
        assert json.loads(await socket.recv())["type"] == "resume"

    async def dies(socket: ServerConnection) -> None:
        await opens(socket)
        seen.append(json.loads(await socket.recv()))
        socket.transport.abort()

    async def answers(socket: ServerConnection) -> None:
        assert json.loads(await socket.recv()) == {"type": "resume", "chat": "a"}
        seen.append(json.loads(await socket.recv()))
        await accept(socket, seen[-1]["id"])
        await socket.wait_closed()

    async with server(dies, answers) as url, Chatting(url) as chat:
        id = chat.client.send_message("hello")
        await chat.reports(AcceptedFrame)
        received = chat.received
    assert seen == [{"type": "message", "id": id, "chat": "a", "text": "hello"}] * 2
    assert [type(one) for one in received[:2]] == [Connected, OpeningLines]
    notes = [ChatNote("the connection is lost; trying again", lost=True), ChatNote("connected again")]
    assert received[2:] == [*notes, AcceptedFrame(id, "a", 0, 1)]


async def test_a_refusal_that_means_later_is_tried_again_by_itself() -> None:
    """The store was away for a moment: the history and the message come when it is back."""

    async def away_once(socket: ServerConnection) -> None:
        for _ in range(2):
            assert json.loads(await socket.recv())["type"] == "history"
            if not received_history:
                received_history.append(True)
                await socket.send(
                    '{"type":"error","code":"unavailable","message":"away","chat":"a","retry_after":0.01}'
                )
        await socket.send(NOTHING.decode())
        await socket.recv()
        id = json.loads(await socket.recv())["id"]
        error = {"type": "error", "code": "unavailable", "message": "x", "id": id, "retry_after": 0.01}
        await socket.send(json.dumps(error))
        assert json.loads(await socket.recv())["id"] == id
        await accept(socket, id)
        await socket.wait_closed()

    received_history: list[bool] = []
    async with server(away_once) as url, Chatting(url) as chat:
        chat.client.send_message("hello")
        await chat.reports(AcceptedFrame)
        assert sum(isinstance(one, ChatNote) and one.retry_s == 0.01 for one in chat.received) == 2


async def test_a_revoked_token_ends_the_chat() -> None:
    """Close code 4401 is no reason to come back."""

    async def closes(socket: ServerConnection) -> None:
        await socket.close(4401, "not allowed")

    async with server(closes) as url, Chatting(url) as chat:
        assert "does not take this token" in await chat.end()


async def test_patience_ends_with_what_became_of_the_message() -> None:
    """A script must end some day, and its user must know whether to send again."""

    async def dies(socket: ServerConnection) -> None:
        socket.transport.abort()

    async with server(dies) as url:
        chat = Chatting(url, patience_s=0)
        chat.client.send_message("hello")
        async with chat:
            assert "may not have been received" in await chat.end()


async def test_it_speaks_with_the_real_gateway(redis_url: str) -> None:
    """The frames here and there are written apart; this joins them."""
    async with gateway(redis_url) as running, worker(redis_url) as w:
        async with Chatting(f"ws://{running.address}/ws", TOKENS["owner"]) as chat:
            id = chat.client.send_message("hello")
            await chat.reports(AcceptedFrame)
            await w.run_once()
            await chat.reports(ReplyEvent)
            [answer] = [one for one in chat.received if isinstance(one, ReplyEvent)]
            assert (answer.ids, answer.reply.text) == ((id,), "you said: hello")
            assert GrowingReply(1, "you ") in chat.received
            chat.client.acknowledge(answer.reply.seq)
            assert chat.client.list_chats()
            await chat.reports(ChatListFrame)
            [listed] = [one for one in chat.received if isinstance(one, ChatListFrame)]
            assert [row.seen for row in listed.chats] == [answer.reply.seq]


@pytest.mark.parametrize(
    "news",
    [
        (ResumedFrame("a", 0, None),),
        (ReplyEvent(reply(2, 5), ()), ResumedFrame("a", 2, running=5)),
        (ResumedFrame("a", 0, running=5), ReplyEvent(reply(1, 5, kind="notice"), ()), ReplyEvent(reply(2, 5), ())),
        (ResumedFrame("a", 0, running=5), ChatNote("the connection is lost"), ResumedFrame("a", 0, None)),
    ],
)
def test_the_prompt_comes_as_soon_as_nothing_runs(news: tuple[ClientEvent, ...]) -> None:
    """A turn that ended while the chat was resumed, or that the store forgot, is not waited for."""
    talk = ChatDialog(
        Script(OpeningLines((message_frame("a", 1, "x", "earlier"),)), *news), PlainScreen(), own_only=False
    )
    talk.open(6)


def test_one_ctrl_c_stops_and_two_leave() -> None:
    """At once where there is nothing to stop."""
    ours, other = (
        Script(Interrupted(), Interrupted()),
        Script(ResumedFrame("a", 0, running=5), Interrupted(), Interrupted()),
    )
    with pytest.raises(UserLeft):
        ChatDialog(ours, PlainScreen(), own_only=True).ask("hello")
    assert ours.stopped == [None]
    with pytest.raises(UserLeft):
        ChatDialog(other, PlainScreen(), own_only=False).open(6)
    assert other.stopped == [5], "the turn that ran is named"
    with pytest.raises(UserLeft):
        ChatDialog(Script(Interrupted()), PlainScreen(), own_only=False).open(6)


def test_an_answer_to_a_command_differs_from_the_end_of_a_conversation() -> None:
    """Both are of one kind; for a script the one is success and the other is not."""
    own, others = reply(2, 0, "m1", kind="command"), reply(2, 5, "c9", "m1", kind="command")
    for line, good in ((own, True), (others, False)):
        talk = ChatDialog(
            Script(AcceptedFrame("m1", "a", 0, 5), ReplyEvent(line, ("m1",))), PlainScreen(), own_only=True
        )
        assert talk.exit_code(talk.ask("/status")) == (0 if good else 1)


def test_what_the_gateway_offers_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line says how to learn about commands, where there are any, and how to leave."""
    hello = Connected("owner", ("help", "new"))
    talk = ChatDialog(Script(hello, ResumedFrame("a", 0, None)), PlainScreen(), own_only=False)
    talk.open(6)
    assert talk.commands == ("/help", "/new")
    result = "(connected as owner; /help shows what you can ask with a slash, /quit or Ctrl-D leaves)\n"
    assert capsys.readouterr().err == result
    ChatDialog(Script(Connected("owner"), ResumedFrame("a", 0, None)), PlainScreen(), own_only=False).open(6)
    assert capsys.readouterr().err == "(connected as owner; /quit or Ctrl-D leaves)\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/hepl me", "/hepl"), ("/help", ""), ("  /HELP", ""), ("/etc/hosts is broken", ""), ("/ what", ""),
        ("help", ""), ("a /hepl", ""),
    ],
)  # fmt: skip
def test_a_misspelt_command_differs_from_a_path(text: str, word: str) -> None:
    """It goes to the model as any message does, and the person knows it. A gateway that offers none is no judge."""
    assert unknown_command(text, ("/help", "/new")) == word
    assert unknown_command(text, ()) == ""


def test_what_a_person_reads_in_the_terminal_is_read() -> None:
    """The newest old line, and each that comes; with no old line shown, none. A script has read only its own answer."""
    past = OpeningLines((message_frame("a", 1, "x", "earlier"), reply(2, 4)))
    news = (past, ResumedFrame("a", 2, None), ReplyEvent(reply(3, 5), ()), message_frame("a", 4, "y", "elsewhere"))
    for own_only, history, seen in ((False, 6, [2, 3, 4]), (False, 0, [3, 4]), (True, 6, [])):
        script = Script(*news)
        talk = ChatDialog(script, PlainScreen(), own_only=own_only)
        talk.open(history)
        with pytest.raises(ChatFailed):
            talk.catch_up()
        assert script.acknowledged == seen


class Quiet(Script):
    """A chat in which nothing happens for a while, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []
        self.events = self  # type: ignore[assignment]

    def get(self, timeout: float | None) -> ChatEnded:
        self.waited.append(timeout)
        if len(self.waited) < 2:
            raise queue.Empty
        return ChatEnded("the script ended")


def test_a_person_who_waits_in_silence_learns_what_they_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Once; a script is told nothing."""
    chat = Quiet()
    with pytest.raises(ChatFailed):
        ChatDialog(chat, PlainScreen(), own_only=False).ask("hello")
    assert chat.waited == [SILENCE_S, None]
    assert capsys.readouterr().err.count("no word yet; Ctrl-C stops") == 1


def test_who_asks_one_thing_sees_nothing_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Other messages of the same chat come first; their text and their answers are not ours."""
    script = Script(
        message_frame("a", 1, "x", "from elsewhere"), GrowingReply(4, "not ours"), AcceptedFrame("m1", "a", 1, 5),
        ProgressFrame("a", 4, "no"),
        ReplyEvent(reply(2, 4), ()), GrowingReply(5, "our"), message_frame("a", 3, "m1", "hello"),
        ReplyEvent(reply(4, 5, text="ours"), ("m1",)),
    )  # fmt: skip
    assert ChatDialog(script, PlainScreen(), own_only=True).ask("hello").text == "ours"
    result = capsys.readouterr()
    assert (result.out, result.err) == ("ours\n", "(1 message of this chat before it)\n")


# What reaches the eyes.


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain\ttext\nwith lines", "plain\ttext\nwith lines"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a new title\x07after", "after"),
        ("\x1b]52;c;c3RvbGVu\x1b\\after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred\x9d0;title\x9cafter", "redafter"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1bcreset \x1b(0charset \x1b7save", "reset charset save"),
        ("bell\x07 back\x08 return\rover delete\x7f", "bell back returnover delete"),
        ("dos\r\nline", "dos\nline"),
        ("cut off \x1b", "cut off "),
        ("cut off \x1b[3", "cut off "),
        ("cut off \x1b]0;title\nthe next line stays", "cut off \nthe next line stays"),
        ("ünïcödé 🐟 \u05d0\u200f", "ünïcödé 🐟 \u05d0\u200f"),
        ("rm \u202exe.txt\u202c \u2066a\u2069", "rm xe.txt a"),
    ],
)
def test_control_codes_never_reach_the_terminal(text: str, left: str) -> None:
    """Colours, titles, the clipboard, the cursor: a model must not have any of them."""
    assert clean(text) == left


def rendered(text: str) -> str:
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system=None, width=60).print(SafeMarkdown(text))
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "`\x1b]0;title\x07`",
        "&#27;[31mred",
        "<http://example.org/%1b[31mred>",
        "<http://example.org/%1b]0;title%07>",
        "[text](http://example.org/\x1b[31m)",
        "[text](<http://example.org/&#27;[31m>)",
        "![image](http://example.org/%1b)",
        "```\n\x1b[2J\n```",
        "<div>\x1b[2J</div>",
        "| a |\n|---|\n| \x1b[2J |",
        "&#8238;backwards",
        "<http://example.org/%E2%80%AEmoc.elpmaxe>",
    ],
)
def test_markdown_brings_no_escape_sequence_of_its_own(text: str) -> None:
    """Also not in disguise: as an entity, percent-encoded in a link, in code, in a table."""
    out = rendered(text)
    assert not {char for char in out if ord(char) < 32 or 127 <= ord(char) < 160 or char == "\u202e"} - {"\n"}


def test_markdown_hides_neither_addresses_nor_html() -> None:
    """Where a link leads is visible, and what looks like a tag may be what the answer is about."""
    assert "http://evil.example" in rendered("[your bank](http://evil.example)")
    assert "<String>" in rendered("a List<String> of them")
    assert "<div>text</div>" in rendered("<div>text</div>")


def test_a_terminal_shows_the_end_of_a_long_answer_and_then_all_of_it() -> None:
    """What runs fits on the screen; what is whole stands in the scrollback."""
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, color_system=None, width=40, height=10))
    text = "\n\n".join(f"paragraph {n}" for n in range(50))
    screen.running(text)
    screen.rest()
    assert "paragraph 49" in out.getvalue()
    assert "paragraph 2 " not in out.getvalue()
    screen.reply(reply(1, 1, text=text))
    assert "paragraph 2 " in out.getvalue()


def test_a_remark_in_the_middle_of_a_turn_leaves_its_text_on_the_terminal() -> None:
    """A notice, or the answer of a command, stands above the text, which goes with its own reply only."""
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, color_system=None, width=40, height=10))
    screen.running("Once upon")
    for number, kind in enumerate(("notice", "command"), 1):
        screen.reply(reply(number, 0, kind=kind, text=f"remark {number}"))
        assert "Once upon" in out.getvalue().rpartition(f"remark {number}")[2]
    screen.reply(reply(3, 1, text="The end."))
    assert "Once upon" not in out.getvalue().rpartition("The end.")[2]


def test_a_pipe_gets_the_answer_as_it_grows_and_each_word_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Also when an escape sequence is cut in two; another attempt's words come whole, behind a gap."""
    screen = PlainScreen()
    for text in ("Hel", "Hello \x1b", "Hello \x1b[31mwor"):
        screen.running(text)
    assert capsys.readouterr().out == "Hello wor"
    screen.reply(reply(1, 1, text="Hello \x1b[31mworld"))
    assert capsys.readouterr().out == "ld\n"
    screen.running("One two")
    screen.running("Other")
    screen.progress("calculate(\x1b[2J)")
    screen.reply(reply(2, 2, text="Other words"))
    result = capsys.readouterr()
    assert result.out == "One two\n\nOther words\n"
    assert result.err == "· calculate()\n"


def test_a_program_gets_the_last_word_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """As text, or as an object with stable keys."""
    plain, as_json = Screen(), JsonScreen()
    for screen in (plain, as_json):
        screen.running("Hel")
        screen.progress("thinking")
    plain.reply(reply(1, 1, text="Hello\x1b[31m"))
    assert capsys.readouterr().out == "Hello\n"
    as_json.reply(reply(1, 1, text="Hello"))
    assert json.loads(capsys.readouterr().out) == {"chat": "a", "seq": 1, "turn": 1, "kind": "reply", "text": "Hello"}


@pytest.mark.parametrize(
    ("environ", "url", "token", "wanted"),
    [
        ({"SHOAL_WEB__TOKEN": "s"}, None, None, ("ws://127.0.0.1:8080/ws", "s")),
        ({"SHOAL_WEB__TOKENS__OWNER": "s", "SHOAL_WEB__PORT": "9"}, None, None, ("ws://127.0.0.1:9/ws", "s")),
        ({"SHOAL_WEB__TOKEN": "s", "SHOAL_WEB__HOST": "0.0.0.0"}, None, "mine", ("ws://127.0.0.1:8080/ws", "mine")),
        ({"SHOAL_WEB__TOKEN": "s", "SHOAL_WEB__HOST": "::1"}, None, None, ("ws://[::1]:8080/ws", "s")),
        ({}, "http://h:1/#token=printed", None, ("ws://h:1/ws", "printed")),
        ({}, "https://h/", "t", ("wss://h/ws", "t")),
        ({}, "wss://h/shoal/ws", "t", ("wss://h/shoal/ws", "t")),
    ],
)
def test_the_gateway_is_where_the_settings_or_the_options_say(
    environ: dict[str, str], url: str | None, token: str | None, wanted: tuple[str, str]
) -> None:
    """Options first; the line that `make up` prints can be pasted."""
    assert find_target(load(environ), url, token) == wanted


def test_the_token_of_make_up_is_found_in_the_data_folder(tmp_path: Path) -> None:
    """No option is needed where Shoal was started."""
    (tmp_path / "web.token").write_text("made\n")
    assert find_target(load({"SHOAL_DATA__DIR": str(tmp_path)}), None, None)[1] == "made"


@pytest.mark.parametrize(
    ("environ", "url", "result"),
    [
        ({"SHOAL_WEB__PORT": "0"}, None, "web.port is 0"),
        ({"SHOAL_WEB__TOKENS__ANN": "s"}, None, "say who you are with --token"),
        ({"SHOAL_DATA__DIR": "/nowhere"}, None, "start `shoal up` here, or give --token"),
        ({}, "ftp://h", "write it like ws://"),
        ({}, "127.0.0.1:8080", "write it like ws://"),
    ],
)
def test_a_target_that_cannot_be_found_is_one_line(environ: dict[str, str], url: str | None, result: str) -> None:
    """It says what to do."""
    with pytest.raises(SettingsError, match=result) as failed:
        find_target(load(environ), url, None)
    assert "\n" not in str(failed.value)


def test_times_and_sizes_are_in_words() -> None:
    """Short ones, for tables."""
    assert [duration(s) for s in (-1, 59, 60, 3 * 3600 + 61, 50 * 3600)] == [
        "0 s",
        "59 s",
        "1 min",
        "3 h 1 min",
        "2 d 2 h",
    ]
    assert [size(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.0 KB",
        "5.0 MB",
        "3072.0 GB",
    ]
