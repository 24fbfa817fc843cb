"""Socket Mode: taken, then confirmed, in order; and how a connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gateway.channels.slack.api import SocketModeConnection
from gateway.channels.slack.channel import SocketModeListener
from gateway.channels.slack.wire import EventCallback, SlackEvent
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.errors import RedisAway, Refused
from shared.tasks import cancel_all
from tests.gateway.channels.slack.payloads import callback, message
from tests.helpers.wait import eventually


class PlayedSocket(SocketModeConnection):
    """A connection that a test speaks over; None ends it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[str | None] = asyncio.Queue()
        self.confirmed: list[str] = []
        self.closed = False

    def tell(self, id: str, text: str, *, channel: str = "D1") -> None:
        payload = json.loads(callback(message(text, channel=channel)))
        self.say({"envelope_id": id, "type": "events_api", "payload": payload})

    def say(self, frame: dict[str, Any]) -> None:
        self.frames.put_nowait(json.dumps(frame))

    async def receive(self) -> str | None:
        return await self.frames.get()

    async def acknowledge(self, envelope_id: str) -> None:
        self.confirmed.append(envelope_id)

    async def close(self) -> None:
        self.closed = True


class Played:
    """A listener on played sockets. `take` is what becomes of an event; `taken` are the texts, in order."""

    def __init__(self) -> None:
        self.sockets: list[PlayedSocket] = []
        self.accepted: list[str] = []
        self.until = asyncio.Event()
        self.take: Callable[[str], Awaitable[None]] | None = None
        self.refuses: Exception | None = None
        self.listener = SocketModeListener(self._connect, self._take, hold_s=5.0)

    async def _connect(self) -> PlayedSocket:
        if self.refuses is not None:
            raise self.refuses
        self.sockets.append(PlayedSocket())
        return self.sockets[-1]

    async def _take(self, event: SlackEvent) -> None:
        assert isinstance(event, EventCallback)
        text = event.event.text or ""
        if self.take is not None:
            await self.take(text)
        self.accepted.append(text)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[asyncio.Task[None], PlayedSocket]]:
        """The task, and its first socket."""
        task = asyncio.create_task(self.listener.run(self.until))
        try:
            await eventually(lambda: self.sockets or task.done())
            yield task, self.sockets[0]
        finally:
            await cancel_all([task])


async def test_an_accepted_event_is_confirmed() -> None:
    """And not before."""
    played, go = Played(), asyncio.Event()

    async def wait(_: str) -> None:
        await go.wait()

    played.take = wait
    async with played.listening() as (_, socket):
        socket.say({"type": "hello", "num_connections": 1})
        socket.tell("e1", "one")
        await asyncio.sleep(0)
        assert socket.confirmed == []
        go.set()
        await eventually(lambda: socket.confirmed == ["e1"])
    assert socket.closed


async def test_events_of_a_channel_are_accepted_in_order_and_others_do_not_wait() -> None:
    """One that takes long, such as with a file, is in nobody else's way."""
    played, go = Played(), asyncio.Event()

    async def wait(text: str) -> None:
        if text == "slow":
            await go.wait()

    played.take = wait
    async with played.listening() as (_, socket):
        socket.tell("e1", "slow")
        socket.tell("e2", "next")
        socket.tell("e3", "other", channel="D2")
        await eventually(lambda: socket.confirmed == ["e3"])
        go.set()
        await eventually(lambda: socket.confirmed == ["e3", "e1", "e2"])
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
    async with played.listening() as (_, socket):
        socket.tell("e1", "one")
        socket.tell("e2", "two")
        await eventually(lambda: socket.confirmed == ["e1", "e2"])
    assert (played.accepted, tries) == (["one", "two"], 3)


async def test_an_event_that_cannot_be_accepted_for_long_is_left_to_another_replica() -> None:
    """The connection ends, so that Slack tells it elsewhere."""
    played = Played()
    played.listener = SocketModeListener(played._connect, played._take, hold_s=0.2)

    async def fail(_: str) -> None:
        raise RedisAway("away")

    played.take = fail
    async with played.listening() as (task, socket):
        socket.tell("e1", "one")
        with pytest.raises(RedisAway):
            await task
    assert (socket.confirmed, socket.closed) == ([], True)


async def test_a_fault_over_one_event_is_in_nobodys_way() -> None:
    """It is not confirmed: Slack tells it again, and then no more."""
    played = Played()

    async def fail(text: str) -> None:
        if text == "bad":
            raise ValueError("a fault")

    played.take = fail
    async with played.listening() as (_, socket):
        socket.tell("e1", "bad")
        socket.tell("e2", "good")
        await eventually(lambda: socket.confirmed == ["e2"])


async def test_what_says_nothing_to_us_is_confirmed_at_once() -> None:
    """Strange forms too, or Slack would tell them again."""
    played = Played()
    async with played.listening() as (_, socket):
        socket.frames.put_nowait("what?")
        socket.say({"envelope_id": "e1", "type": "events_api", "payload": {"type": "event_callback", "event": 7}})
        socket.say({"envelope_id": "e2", "type": "something_new", "payload": {}})
        socket.tell("e3", "hi")
        await eventually(lambda: sorted(socket.confirmed) == ["e1", "e2", "e3"])


async def test_the_next_connection_is_there_before_the_old_one_ends() -> None:
    """Slack says ahead that it will close it; what still comes over it is heard."""
    played = Played()
    async with played.listening() as (task, old):
        old.say({"type": "disconnect", "reason": "warning", "debug_info": {"host": "applink-1"}})
        await eventually(lambda: len(played.sockets) == 2)
        old.tell("e1", "late")
        played.sockets[1].tell("e2", "new", channel="D2")
        await eventually(lambda: (old.confirmed, played.sockets[1].confirmed) == (["e1"], ["e2"]))
        assert not old.closed
        old.frames.put_nowait(None)
        await eventually(lambda: old.closed)
        assert not task.done()
        played.sockets[1].say({"type": "disconnect", "reason": "refresh_requested"})
        await eventually(lambda: len(played.sockets) == 3)


@pytest.mark.parametrize(
    ("reason", "error"),
    [("link_disabled", ChannelBroken), ("too_many_websockets", NotAccepted)],
)
async def test_slack_says_why_it_ends_a_connection(reason: str, error: type[Exception]) -> None:
    """Socket Mode was turned off: a person must mend that. Too many: later again."""
    played = Played()
    async with played.listening() as (task, socket):
        socket.say({"type": "disconnect", "reason": reason})
        with pytest.raises(error):
            await task
    assert socket.closed


async def test_a_lost_connection_is_reported() -> None:
    """Whoever listens begins again."""
    played = Played()
    async with played.listening() as (task, socket):
        socket.frames.put_nowait(None)
        with pytest.raises(NotAccepted):
            await task


async def test_a_missing_connection_is_reported() -> None:
    """As it was told."""
    played = Played()
    played.refuses = NotAccepted("no socket")
    with pytest.raises(NotAccepted):
        await played.listener.run(played.until)


async def test_at_the_end_what_is_under_way_is_finished_and_no_more_begun() -> None:
    """The rest is told to another replica."""
    played, go = Played(), asyncio.Event()

    async def wait(_: str) -> None:
        await go.wait()

    played.take = wait
    async with played.listening() as (task, socket):
        socket.tell("e1", "one")
        await eventually(lambda: socket.frames.empty() and played.listener._events.tasks)
        played.until.set()
        await eventually(lambda: all(reader.done() for reader in played.listener._events._sockets))
        socket.tell("e2", "two")
        go.set()
        await task
    assert (socket.confirmed, socket.closed) == (["e1"], True)
