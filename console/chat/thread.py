"""A chat client beside a terminal: the client has a thread of its own, the terminal may block."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import uuid
from collections.abc import Callable
from types import TracebackType

import msgspec

from console.chat.client import ChatClient, ChatFailed, ClientEvent, GatewayTarget


class ChatEnded(msgspec.Struct, frozen=True):
    """The chat cannot go on; `reason` is one line for the person."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """The person pressed Ctrl-C."""


class ChatThread:
    """`with ChatThread(...) as chat:` keeps it connected. What happens comes out of `news`, in
    order."""

    def __init__(self, target: GatewayTarget, chat: str, *, patience_s: float = float("inf")) -> None:
        # A SimpleQueue, because a signal handler may put something into it at any moment.
        self.news: queue.SimpleQueue[ClientEvent | ChatEnded | Interrupted] = queue.SimpleQueue()
        self._client = ChatClient(target, chat, self.news.put, patience_s=patience_s)
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
        """Send a message; its id."""
        id = str(uuid.uuid4())
        self._call_soon(lambda: self._client.send_message(id, text))
        return id

    def stop(self, turn: int | None = None) -> None:
        """End `turn`, or else the answer to what was said here."""
        self._call_soon(lambda: self._client.stop(turn))

    def interrupt(self) -> None:
        """The person pressed Ctrl-C. For signal handlers."""
        self.news.put(Interrupted())

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except ChatFailed as exc:
            self.news.put(ChatEnded(str(exc)))
        except BaseException as exc:
            self.news.put(ChatEnded(f"the chat broke: {exc!r}"))
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
        with contextlib.suppress(RuntimeError):  # it has ended; `news` says why
            self._loop.call_soon_threadsafe(function)
