"""A long connection: taken, then confirmed, in order; and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from gateway.channels.feishu.frames import DATA, FeishuFrame, write_frame
from gateway.channels.feishu.listener import LongConnectionListener
from gateway.channels.feishu.wire import CardPressed, FeishuEvent, MessageReceived
from gateway.platform.protocol import NotAccepted
from shared.errors import RedisAway, Refused
from shared.tasks import cancel_all
from tests.gateway.channels.feishu.events import message, pressed
from tests.helpers.wait import eventually


class PlayedSocket:
    """A connection that a test speaks over; None ends it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answered: list[tuple[str, int, bytes | None]] = []
        self.closed = False

    @property
    def confirmed(self) -> list[str]:
        return [id for id, code, _ in self.answered if code == 200]

    def tell(self, id: str, text: str, *, chat: str = "oc_1", pieces: int = 1) -> None:
        self.say(id, message({"text": text}, chat_id=chat), pieces=pieces)

    def say(self, id: str, payload: bytes, *, pieces: int = 1) -> None:
        size = -(-len(payload) // pieces)
        for number in range(pieces):
            headers = (("type", "event"), ("message_id", id), ("sum", str(pieces)), ("seq", str(number)))
            part = payload[number * size : (number + 1) * size]
            self.frames.put_nowait(write_frame(FeishuFrame(method=DATA, headers=headers, payload=part)))

    async def receive(self) -> bytes | None:
        return await self.frames.get()

    async def acknowledge(self, frame: FeishuFrame, began_at: float, *, code: int, data: bytes | None = None) -> None:
        self.answered.append((frame.header("message_id"), code, data))

    async def close(self) -> None:
        self.closed = True


class Played:
    """A listener on a played connection. `take` is what becomes of an event; `taken` are the texts, in order."""

    def __init__(self) -> None:
        self.socket = PlayedSocket()
        self.accepted: list[str] = []
        self.until = asyncio.Event()
        self.take: Callable[[str], Awaitable[None]] | None = None
        self.listener = self.listening_for(5.0)

    def listening_for(self, seconds: float) -> LongConnectionListener:
        return LongConnectionListener(self._connect, self._take, hold_s=seconds, press_s=seconds)

    async def _connect(self) -> PlayedSocket:
        return self.socket

    async def _take(self, event: FeishuEvent) -> bytes | None:
        text = "press"
        if isinstance(event.event, MessageReceived):
            text = json.loads(event.event.message.content or "")["text"]
        if self.take is not None:
            await self.take(text)
        self.accepted.append(text)
        return b'{"toast":{}}' if isinstance(event.event, CardPressed) else None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.listener.run(self.until))
        try:
            yield task
        finally:
            await cancel_all([task])


async def test_an_accepted_event_is_confirmed() -> None:
    """And not before."""
    played, go = Played(), asyncio.Event()

    async def wait(_: str) -> None:
        await go.wait()

    played.take = wait
    async with played.listening():
        played.socket.tell("e1", "one")
        await eventually(lambda: played.listener._events.tasks)
        assert played.socket.answered == []
        go.set()
        await eventually(lambda: played.socket.answered == [("e1", 200, None)])
    assert played.socket.closed


async def test_what_comes_in_pieces_is_one_event() -> None:
    """Confirmed once, with the last piece."""
    played = Played()
    async with played.listening():
        played.socket.tell("e1", "long " * 100, pieces=5)
        await eventually(lambda: played.socket.answered)
    assert played.accepted == ["long " * 100]
    assert played.socket.answered == [("e1", 200, None)]


async def test_who_pressed_a_button_is_shown_something() -> None:
    """In the answer."""
    played = Played()
    async with played.listening():
        played.socket.say("e1", pressed())
        await eventually(lambda: played.socket.answered == [("e1", 200, b'{"toast":{}}')])


async def test_events_of_a_chat_are_accepted_in_order_and_others_do_not_wait() -> None:
    """One that takes long, such as with a file, is in nobody else's way."""
    played, go = Played(), asyncio.Event()

    async def wait(text: str) -> None:
        if text == "slow":
            await go.wait()

    played.take = wait
    async with played.listening():
        played.socket.tell("e1", "slow")
        played.socket.tell("e2", "next")
        played.socket.tell("e3", "other", chat="oc_2")
        await eventually(lambda: played.socket.confirmed == ["e3"])
        go.set()
        await eventually(lambda: played.socket.confirmed == ["e3", "e1", "e2"])
    assert played.accepted == ["other", "slow", "next"]


@pytest.mark.parametrize("trouble", [RedisAway("away"), Refused("overloaded", "too much", 0.01)])
async def test_an_event_that_cannot_be_accepted_now_is_accepted_soon(trouble: Exception) -> None:
    """It is not confirmed before, and what came after it waits for it."""
    played, tries = Played(), 0

    async def fail(text: str) -> None:
        nonlocal tries
        tries += text == "one"
        if tries < 3:
            raise trouble

    played.take = fail
    async with played.listening():
        played.socket.tell("e1", "one")
        played.socket.tell("e2", "two")
        await eventually(lambda: played.socket.confirmed == ["e1", "e2"])
    assert (played.accepted, tries) == (["one", "two"], 3)


async def test_an_event_that_cannot_be_accepted_for_long_is_left_to_another_replica() -> None:
    """Feishu is told so, and the connection ends, so that it tells it elsewhere."""
    played = Played()
    played.listener = played.listening_for(0.2)

    async def fail(_: str) -> None:
        raise RedisAway("away")

    played.take = fail
    async with played.listening() as task:
        played.socket.tell("e1", "one")
        with pytest.raises(RedisAway):
            await task
    assert (played.socket.answered, played.socket.closed) == ([("e1", 500, None)], True)


async def test_a_person_sees_that_a_press_could_not_be_accepted() -> None:
    """They can press again; the connection is not given up for it."""
    played = Played()
    played.listener = played.listening_for(0.2)

    async def fail(text: str) -> None:
        if text == "press":
            raise RedisAway("away")

    played.take = fail
    async with played.listening() as task:
        played.socket.say("e1", pressed())
        await eventually(lambda: played.socket.answered == [("e1", 500, None)])
        played.socket.tell("e2", "one")
        await eventually(lambda: played.socket.confirmed == ["e2"])
        assert not task.done()


async def test_a_fault_over_one_event_is_in_nobodys_way() -> None:
    """It is not confirmed: Feishu tells it again, and then no more."""
    played = Played()

    async def fail(text: str) -> None:
        if text == "bad":
            raise ValueError("a fault")

    played.take = fail
    async with played.listening():
        played.socket.tell("e1", "bad")
        played.socket.tell("e2", "good")
        await eventually(lambda: played.socket.confirmed == ["e2"])
    assert ("e1", 500, None) in played.socket.answered


async def test_what_says_nothing_to_us_is_confirmed_at_once() -> None:
    """Strange forms too, or Feishu would tell them again. What is no frame is passed over, and so is a pong."""
    played = Played()
    async with played.listening():
        played.socket.frames.put_nowait(b"what?")
        played.socket.frames.put_nowait(write_frame(FeishuFrame(headers=(("type", "pong"),), payload=b"{}")))
        played.socket.frames.put_nowait(write_frame(FeishuFrame(method=DATA, headers=(("sum", "x"),))))
        played.socket.say("e1", b'{"schema":"2.0","header":7}')
        played.socket.say("e2", b"\xff")
        played.socket.say("e3", b'{"schema":"2.0","header":{"event_type":"im.chat.updated_v1"},"event":{}}')
        played.socket.tell("e4", "hi")
        await eventually(lambda: sorted(played.socket.confirmed) == ["e1", "e2", "e3", "e4"])


async def test_a_lost_connection_is_reported() -> None:
    """Whoever listens begins again."""
    played = Played()
    async with played.listening() as task:
        played.socket.frames.put_nowait(None)
        with pytest.raises(NotAccepted):
            await task


async def test_at_the_end_what_is_under_way_is_finished_and_no_more_begun() -> None:
    """The rest is told to another replica."""
    played, go = Played(), asyncio.Event()

    async def wait(_: str) -> None:
        await go.wait()

    played.take = wait
    async with played.listening() as task:
        played.socket.tell("e1", "one")
        await eventually(lambda: played.socket.frames.empty() and played.listener._events.tasks)
        played.until.set()
        await eventually(lambda: all(reader.done() for reader in played.listener._events._sockets))
        played.socket.tell("e2", "two")
        go.set()
        await task
    assert (played.socket.confirmed, played.socket.closed) == (["e1"], True)


def test_the_payloads_here_are_events() -> None:
    """So that nothing above passes for being unreadable."""
    assert msgspec.json.decode(message())["header"]["event_type"] == "im.message.receive_v1"
