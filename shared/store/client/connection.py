"""A connection to Redis that many tasks share. Everything they send in one iteration of the event
loop goes out in one write. Replies come in the order of the commands, so no command may block on
the server, except on a connection that has one owner."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast
from weakref import WeakSet

import hiredis

from shared.errors import ReplyError as ReplyError
from shared.store.client.address import NOT_PRIMARY, REPLICA, Address, Locator
from shared.store.client.address import WrongServer as WrongServer
from shared.tasks import cancel_all

Value = str | bytes | int | float

_ROLE: Final = ("HELLO", 2)
"""Asks for the role of the server, among other things. Every user may send it, whatever its
rights."""


NOT_LET_IN: Final = ("NOAUTH", "WRONGPASS", "ERR AUTH", "ERR max number of clients")
"""Beginnings of error replies with which the server turns a connection down."""


MOVED: Final = "another server has become the primary"


class _PendingReply:
    """Commands that were sent together and wait for their replies."""

    __slots__ = ("answers", "deadline", "future", "many")

    def __init__(self, future: asyncio.Future[list[Any]], many: int, deadline: float) -> None:
        self.future = future
        self.many = many
        self.deadline = deadline
        self.answers: list[Any] = []


class Wire(asyncio.Protocol):
    """One socket connection, from open to close. `siblings` are those of the same client."""

    def __init__(self, limit_s: float, siblings: WeakSet[Wire], leave_on: tuple[str, ...] = NOT_PRIMARY) -> None:
        self.lost = False
        self._leave_on = leave_on
        self._siblings = siblings
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=ConnectionError, replyError=ReplyError)
        self._transport: asyncio.Transport | None = None
        # uvloop collects the writes of one iteration itself, and sends them earlier than we could.
        self._gathers = type(self._loop).__module__.startswith("uvloop")
        self._unsent: list[bytes] = []
        self._waiting: deque[_PendingReply] = deque()
        self._listener: Callable[[Any], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._overdue_before: _PendingReply | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, packed: bytes, many: int) -> asyncio.Future[list[Any]]:
        """Send `many` packed commands; the future gets their replies, errors among them. It
        fails with OSError when the connection breaks."""
        call = _PendingReply(self._loop.create_future(), many, self._loop.time() + self._limit_s)
        self._write(packed)
        # In the order of the commands: replies carry no id.
        self._waiting.append(call)
        # One timer for the oldest call; the limits are all equal, so deadlines are in order, too.
        if self._timer is None:
            self._timer = self._loop.call_at(call.deadline, self._overdue)
        return call.future

    def set_listener(self, listener: Callable[[Any], None]) -> None:
        """Give every reply from now on to `listener`, and None at the end (pub/sub)."""
        self._listener = listener

    def send_command(self, parts: tuple[Value, ...]) -> None:
        """Send one command whose reply goes to the listener."""
        self._write(_packed(parts))

    def _write(self, packed: bytes) -> None:
        if self._gathers and self._transport is not None:
            if not self.lost:
                self._transport.write(packed)
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)

    def _flush(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        waiting = self._waiting
        try:
            reader.feed(data)
            # The parser returns False for an incomplete reply; None is a valid one.
            while (answer := reader.gets()) is not False:
                if self._listener is not None:
                    self._listener(answer)
                    continue
                if type(answer) is ReplyError and (text := str(answer)).startswith(self._leave_on):
                    raise WrongServer(MOVED if text.startswith("MOVED") else REPLICA)
                call = waiting[0]
                call.answers.append(answer)
                if len(call.answers) == call.many:
                    waiting.popleft()
                    if not call.future.done():  # a caller that was cancelled
                        call.future.set_result(call.answers)
        except WrongServer as error:
            self.leave(error)
        except (ConnectionError, IndexError):
            self._end(ConnectionError("the server does not speak the protocol of Redis"))

    def leave(self, error: WrongServer) -> None:
        """Close every connection of this client: the server was demoted. Without this it would keep
        them, and each would be refused for ever, or hear and read what is out of date. The next
        call connects again, to whichever server has the address then."""
        for wire in (self, *self._siblings):
            wire._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc if isinstance(exc, OSError) else ConnectionResetError("the connection ended"))

    def _overdue(self) -> None:
        """Check the oldest call after its deadline. If the event loop was held up, the reply may
        already be in the socket: read once more before giving up."""
        self._timer = None
        if not self._waiting:
            return
        oldest = self._waiting[0]
        if oldest.deadline > self._loop.time():
            self._timer = self._loop.call_at(oldest.deadline, self._overdue)
        elif self._overdue_before is not oldest:
            self._overdue_before = oldest
            self._timer = self._loop.call_later(0, self._overdue)
        else:
            self._end(TimeoutError("no answer"))

    def end(self) -> None:
        """Close the connection; calls that wait for a reply fail."""
        self._end(ConnectionAbortedError("closed"))

    def _end(self, error: OSError) -> None:
        # Set before callbacks run: they must not send on this connection again.
        was_lost = self.lost
        self.lost = True
        if self._listener is not None and not was_lost:
            self._listener(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Swapped first, because a callback may start new calls on a new connection.
        waiting = self._waiting
        self._waiting = deque()
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


class RedisConnection:
    """A connection that opens on the first call, and again after it broke. `limit_s` is the time
    for a reply. A call that is cancelled, or fails, may have happened. `wires` collects the open
    connections of the client that it is for."""

    def __init__(
        self, locator: Locator, *, name: str, connect_s: float, limit_s: float, wires: WeakSet[Wire] | None = None
    ) -> None:
        self._wires = WeakSet[Wire]() if wires is None else wires
        self._locator = locator
        self._name = name
        self._connect_s = connect_s
        self._limit_s = limit_s
        self._wire: Wire | None = None
        self._opening: asyncio.Task[Wire] | None = None
        self._closed = False

    async def call(self, parts: tuple[Value, ...]) -> Any:
        """Send one command and return its reply, texts as bytes. Raises ReplyError, OSError."""
        wire = self._wire
        if wire is None or wire.lost:
            wire = await self._opened()
        [answer] = await wire.send(_packed(parts), 1)
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    async def calls(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send commands together, return their replies. Raises OSError, or the first ReplyError."""
        answers = await self.answers(commands)
        _raise_first(answers)
        return answers

    async def answers(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Send commands together and return their replies, errors among them. Raises OSError."""
        if not commands:
            return []
        packed = b"".join([_packed(tuple(parts)) for parts in commands])
        wire = self._wire
        if wire is None or wire.lost:
            wire = await self._opened()
        return await wire.send(packed, len(commands))

    async def check_role(self) -> None:
        """Ask the server whether it is still the primary. Raises OSError; WrongServer is one."""
        [answer] = await self.answers([_ROLE])
        try:
            self._check_role(answer)
        except WrongServer as error:
            if self._wire is not None:
                self._wire.leave(error)
            raise

    def drop(self) -> None:
        """Close the connection now; the next call opens it again."""
        if self._wire is not None:
            self._wire.end()
            self._wire = None

    async def close(self) -> None:
        """Close the connection for good: a later call fails instead of opening one that leaks."""
        self._closed = True
        try:
            if self._opening is not None:
                await cancel_all([self._opening])
        finally:
            self.drop()
        await asyncio.sleep(0)  # the transport ends in the next turn of the loop

    async def _opened(self) -> Wire:
        if self._closed:
            raise ConnectionAbortedError("closed")
        # Callers that come while the connection opens share one attempt.
        if self._opening is None:
            self._opening = asyncio.create_task(self.open())
            self._opening.add_done_callback(self._is_open)
        try:
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            # Tell our own cancellation from that of the shared attempt, which `close` cancels.
            ours = asyncio.current_task()
            if ours is not None and ours.cancelling():
                raise
            raise ConnectionAbortedError("closed") from None

    def _is_open(self, opening: asyncio.Task[Wire]) -> None:
        self._opening = None
        if opening.cancelled() or opening.exception() is not None:
            return
        if self._closed:  # just before it was open
            opening.result().end()
        else:
            self._wire = opening.result()

    async def open(self) -> Wire:
        """Open a connection that the caller owns and closes. Raises OSError, ReplyError."""
        wire = Wire(self._limit_s, self._wires, self._locator.leave_on)
        try:
            async with asyncio.timeout(self._connect_s):
                address = await self._locator.locate()
                await _connect(wire, address)
                await self._introduce(wire, address)
            if not self._locator.is_current(address):
                raise WrongServer(MOVED)
        except BaseException:
            wire.end()
            raise
        self._wires.add(wire)
        return wire

    async def _introduce(self, wire: Wire, address: Address) -> None:
        """Authenticate, select the database, set our name, and leave a replica at once."""
        hello: list[tuple[Value, ...]] = []
        if address.password:
            hello.append(("AUTH", *((address.user,) if address.user else ()), address.password))
        if address.db:
            hello.append(("SELECT", address.db))
        begin = (*hello, ("CLIENT", "SETNAME", self._name), _ROLE, *self._locator.hello)
        packed = b"".join([_packed(parts) for parts in begin])
        answers = await wire.send(packed, len(begin))
        named, role = answers[len(hello) : len(hello) + 2]
        # Managed services forbid CLIENT; the name is for people who look at a list of connections.
        _raise_first([*answers[: len(hello)], *([named] if str(named).startswith(NOT_LET_IN) else [])])
        # Not `leave`: while an address moves, other connections may have reached the new primary.
        self._check_role(role)

    def _check_role(self, answer: Any) -> None:
        """Read the reply to `_ROLE`, names and values in turn. Raises WrongServer. A server that
        refuses to tell is taken for a primary; its writes show what it is."""
        fields = answer if isinstance(answer, list) else []
        facts = dict(zip(fields[::2], fields[1::2], strict=False))
        self._locator.check(facts.get(b"role"), facts.get(b"mode"))


async def _connect(wire: Wire, address: Address) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: wire, address.path)
        return
    context = None if address.tls is None else address.tls.context()
    host = address.host
    port = address.port
    transport, _ = await loop.create_connection(lambda: wire, host, port, ssl=context)
    _keep_alive(transport.get_extra_info("socket"))


# It takes a tuple of any length.
_packed: Final = cast(Callable[[tuple[Value, ...]], bytes], hiredis.pack_command)


def _raise_first(answers: Iterable[Any]) -> None:
    for answer in answers:
        if isinstance(answer, ReplyError):
            raise answer


def _keep_alive(sock: socket.socket | None) -> None:
    """Detect a dead peer within about 25 s, on platforms that support these options."""
    if sock is None:
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
