"""A client of the web gateway: one chat, over as many connections as it takes, in a thread of its
own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from console.chat.state import ChatEvent, ClientState, RetryLater, decode_frame, encode_frame
from shared.backoff import Backoff
from shared.errors import ShoalError
from shared.messages.web import ClientFrame, ErrorFrame, HelloFrame, WelcomeFrame

CONNECT_S: Final = 5.0
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 2.0
HEARTBEAT_S: Final = 10.0
FRAME_LIMIT_BYTES: Final = 32 * 1024 * 1024
NOT_ALLOWED: Final = 4401


class ChatFailed(ShoalError):
    """The chat cannot be opened, or has ended. The text is one line that says what to do."""


class GatewayTarget(msgspec.Struct, frozen=True):
    """The address of a gateway, and the token for it."""

    url: str
    token: str


class Connected(msgspec.Struct, frozen=True):
    """The token is valid; `again` marks a reconnection. `commands` are words such as `help`."""

    principal: str
    again: bool
    commands: tuple[str, ...] = ()


class Lost(msgspec.Struct, frozen=True):
    """The connection broke; a new one is being made."""


class ChatEnded(msgspec.Struct, frozen=True):
    """The chat ended; `reason` is one line for the person."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """The person pressed Ctrl-C."""


ClientEvent = ChatEvent | Connected | Lost | ChatEnded


class ChatClient:
    """Keeps one chat connected while `run()` runs, and reports its events.

    A message is sent until it is accepted, so a killed gateway or worker loses and doubles nothing.
    The first connection must succeed at once; a lost one is retried for `patience_s` seconds.
    """

    def __init__(
        self,
        target: GatewayTarget,
        chat: str,
        on_event: Callable[[ClientEvent], None],
        *,
        patience_s: float = float("inf"),
    ) -> None:
        self._target = target
        self._state = ClientState(chat)
        self._on_event = on_event
        self._patience_s = patience_s
        self._outgoing: asyncio.Queue[ClientFrame] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._welcomed = False

    def send_message(self, id: str, text: str) -> None:
        """Send a message now, or with the next connection. `id` is a UUID of the caller's."""
        self._send(self._state.send_message(id, text))

    def stop(self, turn: int | None = None) -> None:
        """Stop `turn`, or else the turns that answer messages from here."""
        self._send(self._state.stop(turn))

    async def run(self) -> None:
        """Stay connected until cancelled. Raises ChatFailed."""
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        alone_since = time.monotonic()
        while True:
            try:
                if await self._connection():
                    alone_since = time.monotonic()
                    backoff.reset()
                    self._on_event(Lost())
            except (OSError, TimeoutError, WebSocketException) as exc:
                if not self._welcomed:
                    raise ChatFailed(_no_gateway_text(self._target.url, exc)) from None
            if time.monotonic() - alone_since > self._patience_s:
                raise ChatFailed(self._gave_up_text())
            await backoff.sleep()

    async def _connection(self) -> bool:
        """Run one connection to its end; return whether the gateway welcomed it."""
        async with connect(
            self._target.url,
            open_timeout=CONNECT_S,
            close_timeout=1.0,
            ping_interval=HEARTBEAT_S,
            ping_timeout=HEARTBEAT_S,
            max_size=FRAME_LIMIT_BYTES,
            compression=None,
            proxy=None,
        ) as socket:
            welcomed = False
            try:
                await socket.send(encode_frame(HelloFrame(self._target.token)))
                async with asyncio.timeout(CONNECT_S):
                    welcome = await self._welcome(socket)
                commands = tuple(command.name for command in welcome.commands)
                self._on_event(Connected(welcome.principal, again=self._welcomed, commands=commands))
                self._welcomed = welcomed = True
                await self._exchange_frames(socket)
            except ConnectionClosed as exc:
                if exc.rcvd is not None and exc.rcvd.code == NOT_ALLOWED:
                    raise ChatFailed(_wrong_token_text(self._target.url)) from None
            return welcomed

    async def _welcome(self, socket: ClientConnection) -> WelcomeFrame:
        while True:
            match decode_frame(await socket.recv()):
                case WelcomeFrame() as welcome:
                    return welcome
                case ErrorFrame(code="not_allowed"):
                    raise ChatFailed(_wrong_token_text(self._target.url))
                case _:
                    pass

    async def _exchange_frames(self, socket: ClientConnection) -> None:
        self._outgoing = asyncio.Queue()
        writer = asyncio.create_task(_write(socket, self._outgoing))
        self._send(self._state.opening_frames())
        try:
            async for raw in socket:
                frame = decode_frame(raw)
                if frame is not None:
                    for one in self._state.on_frame(frame):
                        self._dispatch(one)
        finally:
            self._outgoing = None
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            writer.cancel()
            await asyncio.wait([writer])

    def _dispatch(self, one: ChatEvent | ClientFrame) -> None:
        if not isinstance(one, ChatEvent):
            self._send([one])
            return
        self._on_event(one)
        if isinstance(one, RetryLater) and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(one.retry_s, self._send_again)

    def _send_again(self) -> None:
        self._retry = None
        self._send(self._state.delayed_frames())

    def _send(self, frames: Iterable[ClientFrame]) -> None:
        if self._outgoing is not None:  # else the next connection begins with them
            for frame in frames:
                self._outgoing.put_nowait(frame)

    def _gave_up_text(self) -> str:
        fate = "may not have been received" if self._state.unaccepted else "was received and will be answered"
        return f"the gateway at {self._target.url} is gone; what you said {fate}: open this chat again later"


async def _write(socket: ClientConnection, outgoing: asyncio.Queue[ClientFrame]) -> None:
    try:
        while True:
            await socket.send(encode_frame(await outgoing.get()))
    except ConnectionClosed:
        pass  # the reader notices it too


def _no_gateway_text(url: str, error: Exception) -> str:
    match error:
        case InvalidStatus():
            return f"there is no Shoal gateway at {url} (HTTP {error.response.status_code}); check --url"
        case TimeoutError():
            return f"the gateway at {url} does not answer within {CONNECT_S:g} s; check --url, or start `make up`"
        case WebSocketException():
            return f"there is no Shoal gateway at {url} ({error}); check --url"
        case _:
            return f"no gateway at {url}: start `make up`, or say where it is with --url"


def _wrong_token_text(url: str) -> str:
    return f"the gateway at {url} does not take this token; give the right one with --token, or set web.token"


class ChatThread:
    """A chat client in a thread of its own, so that the terminal may block. A context manager; the
    events come out of `events`, in order."""

    def __init__(self, target: GatewayTarget, chat: str, *, patience_s: float = float("inf")) -> None:
        # A SimpleQueue, because a signal handler may put something into it at any moment.
        self.events: queue.SimpleQueue[ClientEvent | Interrupted] = queue.SimpleQueue()
        self._client = ChatClient(target, chat, self.events.put, patience_s=patience_s)
        self._thread = threading.Thread(target=self._run, name="chat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()

    def __enter__(self) -> ChatThread:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._call_soon(self._task.cancel)
        self._thread.join()

    def send_message(self, text: str) -> str:
        """Send a message and return its id."""
        id = str(uuid.uuid4())
        self._call_soon(lambda: self._client.send_message(id, text))
        return id

    def stop(self, turn: int | None = None) -> None:
        """Stop `turn`, or else the turns that answer messages from here."""
        self._call_soon(lambda: self._client.stop(turn))

    def interrupt(self) -> None:
        """Report Ctrl-C. Safe in signal handlers."""
        self.events.put(Interrupted())

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except ChatFailed as exc:
            self.events.put(ChatEnded(str(exc)))
        except BaseException as exc:
            self.events.put(ChatEnded(f"the chat broke: {exc!r}"))
            raise
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._started.set()
        await self._client.run()

    def _call_soon(self, function: Callable[[], object]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has ended; `events` has the reason
            self._loop.call_soon_threadsafe(function)
