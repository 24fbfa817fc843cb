from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.channels.web.socket.connection import BYTES_LIMIT, DRAINED_FRAMES, FRAMES_LIMIT, LIVE_LIMIT, SendQueue


class Pipe:
    """A connection that is full when the test says so."""

    def __init__(self, *, full: bool = False, takes: int = 10_000) -> None:
        self.full = full
        self.takes = takes
        """It is full again after so many frames."""
        self.sent: list[bytes] = []

    def write(self, text: bytes) -> None:
        assert not self.full
        self.sent.append(text)
        self.takes -= 1
        self.full = self.takes <= 0


class Timers:
    """The timers that were set, to be rung by hand."""

    def __init__(self) -> None:
        self.set = 0
        self._made: list[tuple[float, asyncio.TimerHandle]] = []

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(0.0, callback, args, asyncio.get_running_loop())
        self.set += 1
        self._made.append((delay, handle))
        return handle

    @property
    def running(self) -> list[float]:
        """The delays of those that were not cancelled."""
        return [delay for delay, handle in self._made if not handle.cancelled()]

    def ring(self) -> None:
        """The time of all of them has come."""
        due = [handle for _, handle in self._made if not handle.cancelled()]
        self._made.clear()
        for handle in due:
            handle._run()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", made.call_later)
    return made


def outgoing(pipe: Pipe, *, stuck_s: float = 60.0) -> tuple[SendQueue, list[bool]]:
    given_up: list[bool] = []
    return SendQueue(pipe, stuck_s=stuck_s, give_up=lambda: given_up.append(True)), given_up


def drain(queue: SendQueue, pipe: Pipe) -> None:
    """The client reads all of it."""
    pipe.full, pipe.takes = False, 10_000
    queue.resume()


async def test_with_room_a_frame_goes_at_once() -> None:
    """Nothing waits, so nothing is held for it."""
    pipe = Pipe()
    queue, _ = outgoing(pipe)
    queue.send(b"one")
    queue.send_live(b"two")
    assert pipe.sent == [b"one", b"two"]


async def test_frames_that_waited_go_first_and_in_order() -> None:
    """A client that reads in fits sees what any other sees."""
    pipe = Pipe(takes=2)
    queue, given_up = outgoing(pipe)
    for n in range(10):
        queue.send(b"%d" % n)
        if n % 3 == 2:
            pipe.full, pipe.takes = False, 2
            queue.resume()
    drain(queue, pipe)
    assert pipe.sent == [b"%d" % n for n in range(10)]
    assert not given_up


async def test_live_frames_are_left_out_first_and_lines_never() -> None:
    """What is only shown live heals by itself; a line that was let go would be a hole."""
    pipe = Pipe(full=True)
    queue, given_up = outgoing(pipe)
    for n in range(200):
        queue.send_live(b"delta %d" % n)
    for n in range(200):
        queue.send(b"line %d" % n)
    queue.send_live(b"late delta")
    drain(queue, pipe)
    assert [frame for frame in pipe.sent if frame.startswith(b"line")] == [b"line %d" % n for n in range(200)]
    assert len(pipe.sent) == LIVE_LIMIT + 200
    assert not given_up


async def test_too_many_frames_give_the_socket_up() -> None:
    """Memory is bounded: the client comes back and resumes from the log."""
    pipe = Pipe(full=True)
    queue, given_up = outgoing(pipe)
    for n in range(FRAMES_LIMIT + 5):
        queue.send(b"line %d" % n)
    assert given_up == [True]
    drain(queue, pipe)
    assert pipe.sent == []


async def test_too_many_bytes_give_the_socket_up() -> None:
    """A few huge lines are as bad as many."""
    queue, given_up = outgoing(Pipe(full=True))
    for _ in range(4):
        queue.send(b"x" * (BYTES_LIMIT // 2))
    assert given_up == [True]


async def test_who_does_not_read_for_long_is_given_up_once(timers: Timers) -> None:
    """Also with little that waits; whoever is given up is sent nothing more."""
    pipe = Pipe(full=True)
    queue, given_up = outgoing(pipe, stuck_s=20.0)
    queue.send(b"one")
    queue.send(b"two")
    assert timers.running == [20.0]
    timers.ring()
    drain(queue, pipe)
    queue.send(b"three")
    assert (given_up, pipe.sent, timers.running) == ([True], [], [])


async def test_who_reads_slowly_is_not_stuck(timers: Timers) -> None:
    """The time counts anew whenever something went, and ends when nothing waits."""
    pipe = Pipe(full=True)
    queue, given_up = outgoing(pipe)
    for n in range(10):
        queue.send(b"%d" % n)
    for n in range(10):
        assert len(timers.running) == 1
        pipe.full, pipe.takes = False, 1
        queue.resume()
        assert (len(pipe.sent), timers.set) == (n + 1, min(n + 2, 10))
    assert (given_up, timers.running) == ([], [])


async def test_a_full_connection_with_nothing_to_send_is_not_given_up(timers: Timers) -> None:
    """Only what waits can be stuck."""
    pipe = Pipe(takes=1)
    queue, _ = outgoing(pipe)
    queue.send(b"one")
    assert (pipe.full, timers.set) == (True, 0)


async def test_who_reads_a_log_waits_for_room() -> None:
    """A resume of a long log never overflows the queue."""
    pipe = Pipe(full=True)
    queue, _ = outgoing(pipe)
    for n in range(DRAINED_FRAMES):
        await queue.drain()
        queue.send(b"line %d" % n)
    waiting = asyncio.create_task(queue.drain())
    other = asyncio.create_task(queue.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    other.cancel()
    pipe.full, pipe.takes = False, 1
    queue.resume()
    await waiting


async def test_what_waits_is_still_sent_after_the_end_and_nothing_more() -> None:
    """Answers to what was read go out before the connection closes."""
    pipe = Pipe(full=True)
    queue, _ = outgoing(pipe)
    queue.send(b"answer")
    queue.finish()
    queue.send(b"late")
    empty = asyncio.create_task(queue.flush())
    await asyncio.sleep(0)
    assert not empty.done()
    drain(queue, pipe)
    await empty
    assert pipe.sent == [b"answer"]


async def test_a_connection_that_is_gone_keeps_nobody_waiting() -> None:
    """Whoever waits for room, or for the last frame, goes on."""
    queue, given_up = outgoing(Pipe(full=True))
    for n in range(DRAINED_FRAMES):
        queue.send(b"line %d" % n)
    waiting = [asyncio.create_task(queue.drain()), asyncio.create_task(queue.flush())]
    await asyncio.sleep(0)
    queue.drop()
    await asyncio.gather(*waiting)
    assert not given_up
