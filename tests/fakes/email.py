"""A mail server with one mailbox, that of the bot, and people who get what it sends.

People's programs fold mails with the same Message-ID into one, as the larger providers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tests.fakes.email_imap import Imap
from tests.fakes.email_parts import Mode, Received, Wire
from tests.fakes.email_smtp import Smtp
from tests.helpers.stream_server import stream_server

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

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeMail]:
        """The servers inside the running loop."""
        async with self._serving(self.imap.talk) as self.imap_port, self._serving(self.smtp.talk) as self.smtp_port:
            yield self

    def _serving(self, talk: Callable[[Wire], Awaitable[None]]) -> contextlib.AbstractAsyncContextManager[int]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await talk(Wire(reader, writer))

        return stream_server(answer, limit=64 * 1024 * 1024, ssl=self._tls)

    def _take(self, to: str, raw: bytes) -> None:
        mail, box = Received(raw), self.boxes.setdefault(to, [])
        if any(one.id == mail.id for one in box):
            self.doubles += 1
            return
        box.append(mail)
