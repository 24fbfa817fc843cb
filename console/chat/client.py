"""A client of the web gateway: one chat, over as many connections as it takes."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from console.chat.state import ChatEvent, ChatNote, ClientState, decode_frame
from shared.backoff import Backoff
from shared.clock import machine_timezone
from shared.errors import ShoalError
from shared.messages.web import ClientFrame, ErrorFrame, HelloFrame, ListChatsFrame, WelcomeFrame

CONNECT_S: Final = 5.0
HEARTBEAT_S: Final = 10.0
NOT_ALLOWED: Final = 4401
LISTED_CHATS: Final = 20


class ChatFailed(ShoalError):
    """The chat cannot be opened, or has ended. The text is one line that says what to do."""


class Connected(msgspec.Struct, frozen=True):
    """The first connection stands. `commands` are words such as `help`; a message may have `files`
    files of `file_bytes` bytes each."""

    principal: str
    commands: tuple[str, ...] = ()
    files: int = 0
    file_bytes: int = 0


class ChatEnded(msgspec.Struct, frozen=True):
    """The chat ended; `reason` is one line for the person."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """The person pressed Ctrl-C."""


ClientEvent = ChatEvent | Connected | ChatEnded | Interrupted


class ChatClient:
    """Keeps one chat connected, in a thread of its own so that the terminal may block. A context
    manager; what happens comes out of `events`, in order.

    A message is sent until it is accepted, so a killed gateway or worker loses and doubles nothing.
    The first connection must succeed at once; a lost one is retried for `patience_s` seconds.
    """

    def __init__(self, url: str, token: str, chat: str, *, patience_s: float = math.inf) -> None:
        # A SimpleQueue, because a signal handler may put something into it at any moment.
        self.events: queue.SimpleQueue[ClientEvent] = queue.SimpleQueue()
        self._url = url
        self._token = token
        self._patience_s = patience_s
        self._state = ClientState(chat)
        self._socket: Connection | None = None
        self._retry_at = math.inf
        # Held while the state changes and its frames go out: the thread and the terminal do both.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._welcomed = False
        self._thread = threading.Thread(target=self._run, name="chat", daemon=True)

    def __enter__(self) -> ChatClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with self._lock:
            socket = self._socket
        if socket is not None:
            socket.close()
        self._thread.join(timeout=1.0)  # one that still waits for a gateway ends with the process

    def send_message(self, text: str, id: str | None = None, media: Sequence[str] = ()) -> str:
        """Send a message now, or with the next connection. Return its id, by default a new one.
        `media` are the references of uploaded files."""
        id = id or str(uuid.uuid4())
        with self._lock:
            self._deliver(self._state.send_message(id, text, media))
        return id

    def list_chats(self) -> bool:
        """Ask for this person's chats: a `ChatListFrame` follows. Return False without a
        connection."""
        with self._lock:
            self._deliver([ListChatsFrame(limit=LISTED_CHATS)])
            return self._socket is not None

    def acknowledge(self, seq: int) -> None:
        """Report that the person has seen every line up to `seq`."""
        with self._lock:
            self._deliver(self._state.acknowledge(seq))

    def stop(self, turn: int | None = None) -> None:
        """Stop `turn`, or else the turns that answer messages from here."""
        with self._lock:
            self._deliver(self._state.stop(turn))

    def interrupt(self) -> None:
        """Report Ctrl-C. Safe in signal handlers."""
        self.events.put(Interrupted())

    def _run(self) -> None:
        try:
            self._stay_connected()
        except ChatFailed as exc:
            self.events.put(ChatEnded(str(exc)))
        except BaseException as exc:
            self.events.put(ChatEnded(f"the chat broke: {exc!r}"))
            raise

    def _stay_connected(self) -> None:
        backoff = Backoff(0.1, 2.0)
        alone_since = time.monotonic()
        while not self._closing.is_set():
            try:
                self._connect()
            except ConnectionClosed as exc:
                if exc.rcvd is not None and exc.rcvd.code == NOT_ALLOWED:
                    raise ChatFailed(_wrong_token_text(self._url)) from None
            except (OSError, WebSocketException) as exc:
                if not self._welcomed:
                    raise ChatFailed(_no_gateway_text(self._url, exc)) from None
            with self._lock:
                was_welcomed = self._socket is not None
                self._socket = None
            if was_welcomed:
                alone_since = time.monotonic()
                backoff.reset()
                self.events.put(ChatNote("the connection is lost; trying again", lost=True))
            if time.monotonic() - alone_since > self._patience_s:
                lost = self._state.unaccepted
                fate = "may not have been received" if lost else "was received and will be answered"
                raise ChatFailed(
                    f"the gateway at {self._url} is gone; what you said {fate}: open this chat again later"
                )
            self._closing.wait(next(backoff))

    def _connect(self) -> None:
        """Run one connection to its end. Raises ConnectionClosed, and what connecting raises."""
        with connect(
            self._url,
            open_timeout=CONNECT_S,
            close_timeout=1.0,
            ping_interval=HEARTBEAT_S,
            ping_timeout=HEARTBEAT_S,
            max_size=32 * 1024 * 1024,
            compression=None,
            proxy=None,
        ) as socket:
            socket.send(_encode(HelloFrame(self._token, machine_timezone(), "terminal")))
            welcome = decode_frame(socket.recv(timeout=CONNECT_S))
            while not isinstance(welcome, WelcomeFrame):
                if isinstance(welcome, ErrorFrame) and welcome.code == "not_allowed":
                    raise ChatFailed(_wrong_token_text(self._url))
                welcome = decode_frame(socket.recv(timeout=CONNECT_S))
            if self._welcomed:
                self.events.put(ChatNote("connected again"))
            else:
                commands = tuple(command.name for command in welcome.commands)
                limits = welcome.files, welcome.file_bytes
                self.events.put(Connected(welcome.principal, commands, *limits))
            self._welcomed = True

            self._retry_at = math.inf
            with self._lock:
                self._socket = socket  # from here on messages go out at once, after these frames
                self._deliver(self._state.opening_frames())
            while not self._closing.is_set():
                wait_s = self._retry_at - time.monotonic()
                try:
                    raw = socket.recv(None if math.isinf(wait_s) else wait_s)
                except TimeoutError:
                    self._retry_at = math.inf
                    with self._lock:
                        self._deliver(self._state.delayed_frames())
                    continue
                frame = decode_frame(raw)
                if frame is not None:
                    with self._lock:
                        self._deliver(self._state.on_frame(frame))

    def _deliver(self, results: Iterable[ChatEvent | ClientFrame]) -> None:
        """Report events, and send frames. Without a connection the next one begins with them."""
        for one in results:
            if isinstance(one, ChatEvent):
                self.events.put(one)
                if isinstance(one, ChatNote) and one.retry_s is not None:
                    self._retry_at = min(self._retry_at, time.monotonic() + one.retry_s)
            elif self._socket is not None:
                with contextlib.suppress(ConnectionClosed):  # the reader notices it too
                    self._socket.send(_encode(one))


def _encode(frame: ClientFrame) -> str:
    return msgspec.json.encode(frame).decode()


def _no_gateway_text(url: str, error: Exception) -> str:
    if isinstance(error, WebSocketException):
        why = f"HTTP {error.response.status_code}" if isinstance(error, InvalidStatus) else error
        return f"there is no Shoal gateway at {url} ({why}); check --url"
    if isinstance(error, TimeoutError):
        return f"the gateway at {url} does not answer within {CONNECT_S:g} s; check --url, or start `shoal up`"
    return f"no gateway at {url}: start `shoal up`, or say where it is with --url"


def _wrong_token_text(url: str) -> str:
    return f"the gateway at {url} does not take this token; give the right one with --token, or set web.token"
