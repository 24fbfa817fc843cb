"""A mail server with one mailbox, that of the bot, and people who get what it sends.

People's programs fold mails with the same Message-ID into one, as the larger providers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from shared.tasks import cancel_all
from tests.fakes.email_imap import Imap
from tests.fakes.email_parts import Mode, Received, Wire
from tests.fakes.email_smtp import Smtp

BOT: Final = "shoal@pond.example"
PASSWORD: Final = "correct horse"
SERVER: Final = "mx.pond.example"


class FakeMail:
    """Both servers. `boxes` are people's; with `tls` both are encrypted from the start."""

    def __init__(self, *, mode: Mode = "idle", tls: ssl.SSLContext | None = None) -> None:
        self.boxes: dict[str, list[Received]] = {}
        self.doubles = 0
        self.imap = Imap(BOT, PASSWORD, mode)
        self.smtp = Smtp(BOT, PASSWORD, self._take)
        self.imap_port = self.smtp_port = 0
        self._tls = tls
        self._talks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeMail]:
        """The servers inside the running loop."""
        async with contextlib.AsyncExitStack() as stack:
            self.imap_port = await self._serve(self.imap.talk, stack)
            self.smtp_port = await self._serve(self.smtp.talk, stack)
            try:
                yield self
            finally:
                await cancel_all(self._talks)

    async def _serve(self, talk: Callable[[Wire], Awaitable[None]], stack: contextlib.AsyncExitStack) -> int:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._talks.add(task)
            try:
                await talk(Wire(reader, writer))
            except asyncio.CancelledError:
                pass  # the end of the server; asyncio's streams would log it
            finally:
                self._talks.discard(task)
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=64 * 1024 * 1024, ssl=self._tls)
        stack.callback(server.close)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _take(self, to: str, raw: bytes) -> None:
        mail, box = Received(raw), self.boxes.setdefault(to, [])
        if any(one.id == mail.id for one in box):
            self.doubles += 1
            return
        box.append(mail)
