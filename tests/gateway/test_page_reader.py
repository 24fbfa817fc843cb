from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.channels.web.renderer import MarkdownRenderer
from gateway.channels.web.socket.frames import LineRenderer
from gateway.channels.web.socket.page_reader import NewsEncoder, PageReader
from shared.chatlog.follower import BROKEN_AGAIN_S, PAGE, ChatFollower
from shared.messages.live import DeltaEvent, TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage, UserLine
from shared.messages.web import ResumeFrame
from shared.store.delivery.outbox import LogPosition, NumberedLine
from tests.helpers.chat_log import LogByHand, NewsByHand
from tests.helpers.clock import HandClock

S = "web:owner/a"


class SlowWhenAsked(MarkdownRenderer):
    """Text that begins with `slow` is rendered in another process, whatever its length."""

    def is_quick(self, text: str) -> bool:
        return not text.startswith("slow")

    async def html_soon(self, text: str, person: str) -> str:
        await asyncio.sleep(0)
        return text


class Screen:
    """A socket that keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.has_room = asyncio.Event()
        self.has_room.set()

    def send(self, frame: bytes) -> None:
        self.frames.append(json.loads(frame))

    def send_live(self, frame: bytes) -> None:
        self.send(frame)

    async def drain(self) -> None:
        await self.has_room.wait()

    def seqs(self) -> list[int]:
        return [frame["seq"] for frame in self.frames if frame["type"] in ("message", "reply")]

    def of(self, type: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == type]


MARKDOWN = SlowWhenAsked()


class World:
    """A follower over a log and news by hand."""

    def __init__(self, *, by_hand: bool = False) -> None:
        self.log = LogByHand(by_hand=by_hand)
        self.news = NewsByHand()
        self.clock = HandClock()

        def make_news(on_gap: Callable[[], Awaitable[None]]) -> NewsByHand:
            self.news.on_gap = on_gap
            return self.news

        self.follower = ChatFollower(self.log, make_news, self.clock)
        self.encoder = NewsEncoder(LineRenderer(MARKDOWN))
        self.readers: dict[tuple[Screen, str], PageReader] = {}

    def follow(self, screen: Screen, session: str, chat: str, after: int, *, announce: bool, mark: int = 0) -> None:
        self.leave(screen, session)
        reader = self.readers[screen, session] = PageReader(
            screen, self.encoder, session, ResumeFrame(chat, after, mark), announce=announce
        )
        self.follower.follow(session, reader)

    def leave(self, screen: Screen, session: str) -> None:
        if (reader := self.readers.pop((screen, session), None)) is not None:
            self.follower.unfollow(session, reader)

    def hear(self, numbered: NumberedLine) -> None:
        if S in self.news.listeners:
            self.news.listeners[S](numbered)

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)


@asynccontextmanager
async def world(*, by_hand: bool = False) -> AsyncIterator[World]:
    made = World(by_hand=by_hand)
    yield made
    for question in list(made.log.questions):
        question.fail()
    await made.settle()


def sent(n: int) -> UserLine:
    return UserLine(id=f"m{n}", text=f"text {n}")


def reply(n: int, text: str = "hello") -> OutboundMessage:
    return OutboundMessage(content=text, turn=n, in_reply_to=(f"m{n}",))


async def test_a_resume_sends_what_was_missed_in_order_and_then_says_where_it_stands() -> None:
    """The lines come first, then `resumed` with the newest number and the running turn."""
    async with world() as w:
        for n in range(1, 6):
            w.log.append(sent(n))
        w.log.running = 5
        screen = Screen()
        w.follow(screen, S, "a", 2, announce=True)
        await w.settle()
        assert screen.seqs() == [3, 4, 5]
        mark = w.log.numbered(5).mark
        assert screen.frames[-1] == {"type": "resumed", "chat": "a", "seq": 5, "running": 5, "mark": mark}


async def test_a_page_that_is_opened_during_a_turn_gets_the_text_that_stood_there() -> None:
    """After `resumed`, and only then: a page that is open has it."""
    async with world() as w:
        w.log.append(sent(1))
        w.log.running = 1
        w.log.shown = [DeltaEvent(1, 1, 7, "Once", full=True, step=2), DeltaEvent(1, 1, 8, " upon")]
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        assert [frame["type"] for frame in screen.frames] == ["message", "resumed", "delta", "delta"]
        assert [frame["text"] for frame in screen.of("delta")] == ["Once", " upon"]
        await w.follower.recheck()
        await w.settle()
        assert len(screen.of("delta")) == 2


async def test_a_long_log_is_sent_page_by_page_while_the_socket_has_room() -> None:
    """A socket that does not read stops its own reader, and no other's."""
    async with world() as w:
        for n in range(1, 2 * PAGE + 11):
            w.log.append(sent(n))
        slow, quick = Screen(), Screen()
        slow.has_room.clear()
        w.follow(slow, S, "a", 0, announce=True)
        w.follow(quick, S, "a", 0, announce=True)
        await w.settle()
        assert slow.seqs() == [1]
        assert quick.seqs() == list(range(1, 2 * PAGE + 11))
        slow.has_room.set()
        await w.settle()
        assert slow.seqs() == quick.seqs()


async def test_the_log_is_read_only_after_the_subscription_is_confirmed() -> None:
    """Else a line between the two would be in neither."""
    async with world() as w:
        w.news.confirmed.clear()
        w.follow(Screen(), S, "a", 0, announce=True)
        await w.settle()
        assert w.log.reads == 0
        w.news.confirmed.set()
        await w.settle()
        assert w.log.reads == 1


async def test_news_that_is_next_is_sent_without_asking_the_log() -> None:
    """The usual way costs no command."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        before = w.log.reads
        w.hear(w.log.append(sent(1)))
        w.hear(w.log.append(reply(1)))
        await w.settle()
        assert screen.seqs() == [1, 2]
        assert w.log.reads == before


async def test_a_reply_that_takes_long_to_render_comes_in_its_place() -> None:
    """Later lines do not overtake it."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.hear(w.log.append(reply(1, "slow text")))
        w.hear(w.log.append(sent(2)))
        await w.settle()
        assert screen.seqs() == [1, 2]


async def test_a_silent_chat_that_waits_for_a_reply_asks_the_log_every_two_seconds() -> None:
    """A reply whose news was lost is shown all the same; a chat that waits for nothing asks nothing."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.hear(w.log.append(sent(1)))
        w.log.running = 1
        w.log.append(reply(1))  # its news is lost
        w.clock.at += 1.9
        await w.follower.tick()
        await w.settle()
        assert screen.seqs() == [1]
        w.clock.at += 0.2
        await w.follower.tick()
        w.log.running = None
        await w.settle()
        assert screen.seqs() == [1, 2]
        reads = w.log.reads
        for _ in range(5):
            w.clock.at += 2.1
            await w.follower.tick()
            await w.settle()
        assert w.log.reads == reads


async def test_an_accepted_message_whose_news_never_comes_is_asked_for() -> None:
    """The gateway that took the message knows that a reply is due, though it heard nothing at all."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.log.append(sent(1))
        w.readers[screen, S].add_message("m1")
        w.log.running = 1
        w.clock.at += 2.1
        await w.follower.tick()
        await w.settle()
        assert screen.seqs() == [1]


async def test_a_chat_whose_messages_ended_without_a_reply_is_left_alone() -> None:
    """The store says that nothing runs: waiting ends."""
    async with world() as w:
        w.follow(Screen(), S, "a", 0, announce=True)
        await w.settle()
        w.hear(w.log.append(sent(1)))
        for _ in range(4):
            w.clock.at += 2.1
            await w.follower.tick()
            await w.settle()
        assert w.log.reads == 2


async def test_a_client_ahead_of_the_log_is_reset_and_gets_everything() -> None:
    """The store lost its tail: what the client knew is not there any more."""
    async with world() as w:
        w.log.append(sent(1))
        w.log.append(sent(2))
        screen = Screen()
        w.follow(screen, S, "a", 7, announce=True)
        await w.settle()
        assert screen.seqs() == [1, 2]
        resumed = {"type": "resumed", "chat": "a", "seq": 2, "running": None, "reset": True}
        assert screen.frames[-1] == resumed | {"mark": w.log.numbered(2).mark}


async def test_an_open_socket_is_reset_too_when_the_log_went_back() -> None:
    """After a gap the log is shorter than what was sent: the client is told, and shown what there is."""
    async with world() as w:
        for n in range(1, 4):
            w.log.append(sent(n))
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        del w.log.lines[3]
        w.log.last = 2
        await w.news.on_gap()
        await w.settle()
        assert screen.seqs() == [1, 2, 3, 1, 2]
        assert screen.frames[-1]["reset"] is True
        w.hear(w.log.append(sent(3)))
        await w.settle()
        assert screen.seqs()[-1] == 3


async def test_an_open_socket_is_shown_the_log_that_began_anew() -> None:
    """A session that was erased counts from 1 again: its lines are new, not those that were sent before."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        for n in range(1, 4):
            w.hear(w.log.append(sent(n)))
        await w.settle()
        w.log.lines.clear()
        w.log.last = 0
        w.hear(w.log.append(sent(1)))
        await w.settle()
        assert screen.frames[-1]["reset"] is True
        w.hear(w.log.append(reply(1)))
        await w.settle()
        assert screen.seqs() == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("extra", [0, 3])
async def test_a_client_is_reset_whose_numbers_were_used_again_while_it_was_away(extra: int) -> None:
    """The store lost lines 3 and 4, and other lines have these numbers now."""
    async with world() as w:
        for n in range(1, 5):
            w.log.append(sent(n))
        mark = w.log.numbered(4).mark
        w.log.last = 2
        for n in range(5, 7 + extra):
            w.log.append(sent(n))
        screen = Screen()
        w.follow(screen, S, "a", 4, announce=True, mark=mark)
        await w.settle()
        assert [frame["id"] for frame in screen.of("message")][:4] == ["m1", "m2", "m5", "m6"]
        assert screen.frames[-1]["reset"] is True
        assert screen.frames[-1]["mark"] == w.log.numbered(4 + extra).mark


async def test_a_client_that_has_the_line_of_the_log_is_not_reset() -> None:
    """Nor is one whose line was trimmed: there is none to compare with."""
    async with world() as w:
        for n in range(1, 4):
            w.log.append(sent(n))
        mark = w.log.numbered(2).mark
        screen = Screen()
        w.follow(screen, S, "a", 2, announce=True, mark=mark)
        await w.settle()
        assert screen.seqs() == [3]
        del w.log.lines[2]
        other = Screen()
        w.follow(other, S, "a", 2, announce=True, mark=mark)
        await w.settle()
        assert other.seqs() == [3]
        assert not [frame for frame in screen.frames + other.frames if frame.get("reset")]


async def test_an_open_socket_is_reset_when_its_numbers_were_used_again() -> None:
    """Pub/sub broke with the server. The next line comes live before the log was read, and fits in number alone."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        for n in range(1, 4):
            w.hear(w.log.append(sent(n)))
        await w.settle()
        w.log.last = 1
        for n in range(4, 6):
            w.log.append(sent(n))
        await w.news.on_gap()
        w.hear(w.log.append(sent(6)))
        await w.settle()
        assert screen.frames[-1]["reset"] is True
        assert [frame["id"] for frame in screen.of("message")][-4:] == ["m1", "m4", "m5", "m6"]


async def test_a_line_that_comes_while_the_log_answers_is_no_reason_for_a_reset() -> None:
    """The answer is older than the line: the log did not go back."""
    async with world(by_hand=True) as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.log.questions[0].serve()
        w.hear(w.log.append(sent(1)))
        while w.log.questions:
            w.log.questions[0].arrive()
            await w.settle()
        assert screen.seqs() == [1]
        assert [frame.get("reset") for frame in screen.of("resumed")] == [None]


async def test_lines_that_were_trimmed_are_skipped_and_the_next_news_is_next() -> None:
    """A log keeps only so much; what is gone holds nobody up."""
    async with world() as w:
        for n in range(1, 10):
            w.log.append(sent(n))
        for n in range(1, 10):
            del w.log.lines[n]
        screen = Screen()
        w.follow(screen, S, "a", 2, announce=True)
        await w.settle()
        assert screen.frames[-1]["seq"] == 9
        reads = w.log.reads
        w.hear(w.log.append(sent(10)))
        await w.settle()
        assert screen.seqs() == [10]
        assert w.log.reads == reads


async def test_while_redis_is_away_the_client_hears_it_once_and_is_brought_up_later() -> None:
    """One error for a resume, then the lines and `resumed` as soon as the store answers."""
    async with world(by_hand=True) as w:
        w.log.append(sent(1))
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        for _ in range(3):
            for question in list(w.log.questions):
                question.fail()
            await w.settle()
            w.clock.at += 1.1
            await w.follower.tick()
            await w.settle()
        assert [frame["code"] for frame in screen.of("error")] == ["unavailable"]
        w.log.by_hand = False
        for question in list(w.log.questions):
            question.arrive()
        await w.settle()
        assert screen.seqs() == [1]
        assert len(screen.of("resumed")) == 1


async def test_live_events_go_to_every_socket_of_the_chat_and_to_no_other() -> None:
    """Chats are apart."""
    async with world() as w:
        one, two, other = Screen(), Screen(), Screen()
        w.follow(one, S, "a", 0, announce=True)
        w.follow(two, S, "a", 0, announce=True)
        w.follow(other, "web:owner/b", "b", 0, announce=True)
        await w.settle()
        w.news.listeners[S](TurnEvent(1, "started"))
        w.news.listeners[S](DeltaEvent(1, 1, 0, "he", full=True))
        assert (
            one.of("turn")
            == two.of("turn")
            == [{"type": "turn", "chat": "a", "turn": 1, "state": "started", "attempt": 1}]
        )
        assert one.of("delta")[0]["full"] is True
        assert not other.of("turn") + other.of("delta")


async def test_a_chat_that_nobody_shows_is_forgotten() -> None:
    """A gateway does not grow with the chats it once showed."""
    async with world() as w:
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.leave(screen, S)
        await w.follower.tick()
        assert w.follower.chats == 0
        assert not w.news.listeners


async def test_a_bug_in_showing_a_chat_is_an_error_of_that_chat_and_it_is_tried_again() -> None:
    """It is visible, the socket's other chats go on, and nothing is shown nothing for ever."""
    async with world(by_hand=True) as w:
        w.log.append(sent(1))
        screen = Screen()
        w.follow(screen, S, "a", 0, announce=True)
        await w.settle()
        w.log.questions[0].answer.set_exception(KeyError("bug"))
        await w.settle()
        assert [(frame["code"], frame["chat"]) for frame in screen.of("error")] == [("broken", "a")]
        w.log.by_hand = False
        await w.follower.tick()
        await w.settle()
        assert screen.seqs() == []
        w.clock.at += BROKEN_AGAIN_S
        await w.follower.tick()
        await w.settle()
        assert screen.seqs() == [1]


def waits_for(*lines: LogLine) -> bool:
    """Return whether a chat waits for a reply to two messages, the first being answered now, after these lines."""
    log = LogByHand()
    reader = PageReader(Screen(), NewsEncoder(LineRenderer(MARKDOWN)), S, ResumeFrame("a"), announce=False)
    for one in (sent(1), sent(2)):
        assert reader.on_line(log.append(one))
    reader.on_caught_up(LogPosition(log.last, running=1))
    for line in lines:
        assert reader.on_line(log.append(line))
    return reader.waiting


def test_a_command_beside_a_turn_leaves_it_awaited() -> None:
    """`/status` is answered; the turns are not."""
    assert waits_for(
        UserLine(id="c1", text="/status"),
        OutboundMessage(content="x", turn=0, in_reply_to=("c1",), kind="command"),
        reply(1),
    )


def test_after_a_new_conversation_nothing_is_awaited() -> None:
    """Its answer names all that is over, and every turn up to its own."""
    over = OutboundMessage(content="x", turn=2, in_reply_to=("c1", "m1", "m2"), kind="command")
    assert not waits_for(UserLine(id="c1", text="/new"), over)


# Every interleaving

_APPEND = st.tuples(st.just("append"), st.sampled_from(["now", "now", "later", "never", "twice"]), st.booleans())
_HEAR = st.tuples(st.just("hear"), st.integers(0, 5))
_SERVE = st.tuples(st.just("serve"), st.integers(0, 5))
_ARRIVE = st.tuples(st.just("arrive"), st.integers(0, 5))
_RESUME = st.tuples(st.just("resume"), st.integers(0, 2), st.integers(0, 30))
_RARE = st.one_of(
    st.tuples(st.just("fail"), st.integers(0, 5)),
    st.tuples(st.just("leave"), st.integers(0, 2)),
    st.tuples(st.just("gap")),
    st.tuples(st.just("trim"), st.integers(1, 4)),
    st.tuples(st.just("tick"), st.sampled_from([0.5, 1.1, 2.1])),
    st.tuples(st.just("room"), st.integers(0, 2), st.booleans()),
)
_OPS = st.one_of(_APPEND, _APPEND, _APPEND, _HEAR, _SERVE, _SERVE, _ARRIVE, _ARRIVE, _ARRIVE, _ARRIVE, _RESUME, _RARE)


class Story:
    """Plays operations, and knows what each screen must have been sent."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.screens = [Screen() for _ in range(3)]
        self.from_: dict[int, tuple[int, int]] = {}
        self.flying: list[NumberedLine] = []
        self.trimmed: set[int] = set()

    async def play(self, op: tuple[Any, ...]) -> None:
        w = self.w
        match op:
            case ("append", how, slow):
                n = w.log.last + 1
                numbered = w.log.append(reply(n, "slow" if slow else "quick") if n % 2 else sent(n))
                self.flying += {"now": [], "later": [numbered], "never": [], "twice": [numbered, numbered]}[how]
                if how == "now":
                    w.hear(numbered)
            case ("hear", i) if self.flying:
                w.hear(self.flying.pop(i % len(self.flying)))
            case ("serve" | "arrive" | "fail" as act, i) if w.log.questions:
                getattr(w.log.questions[i % len(w.log.questions)], act)()
            case ("resume", i, after):
                after = min(after, w.log.last)
                self.from_[i] = (after, len(self.screens[i].frames))
                w.follow(self.screens[i], S, "a", after, announce=True)
            case ("leave", i):
                self.from_.pop(i, None)
                w.leave(self.screens[i], S)
            case ("gap",):
                await w.news.on_gap()
            case ("trim", many):
                gone = sorted(w.log.lines)[:many]
                for seq in gone:
                    del w.log.lines[seq]
                self.trimmed.update(gone)
            case ("tick", seconds):
                w.clock.at += seconds
                await w.follower.tick()
            case ("room", i, has):
                event = self.screens[i].has_room
                event.set() if has else event.clear()
        await w.settle()
        self.check()

    def check(self) -> None:
        for i, (after, start) in self.from_.items():
            sent = [f["seq"] for f in self.screens[i].frames[start:] if f["type"] in ("message", "reply")]
            known = after
            for seq in sent:
                assert seq > known, f"{seq} after {known}: doubled or out of order"
                assert set(range(known + 1, seq)) <= self.trimmed, f"{seq} after {known}: lost"
                known = seq

    async def end(self) -> None:
        w = self.w
        w.log.by_hand = False
        for screen in self.screens:
            screen.has_room.set()
        for _ in range(3):
            w.clock.at += 2.1
            for question in list(w.log.questions):
                question.arrive()
            await w.news.on_gap()
            for _ in range(4):
                await w.settle()
        self.check()
        for i, (after, start) in self.from_.items():
            frames = self.screens[i].frames[start:]
            sent = {f["seq"] for f in frames if f["type"] in ("message", "reply")}
            assert {seq for seq in w.log.lines if seq > after} <= sent, "lost"
            assert len([f for f in frames if f["type"] == "resumed"]) == 1
            assert not [f for f in frames if f.get("reset")]


@settings(max_examples=400, deadline=None)
@given(st.lists(_OPS, min_size=20, max_size=60))
def test_whatever_happens_each_socket_gets_every_line_once_and_in_order(ops: list[tuple[Any, ...]]) -> None:
    """News lost, late, doubled, out of order; answers late; store away; lines trimmed; slow sockets; resumes."""

    async def play() -> None:
        async with world(by_hand=True) as w:
            story = Story(w)
            for op in ops:
                await story.play(op)
            await story.end()

    asyncio.run(play())
