"""Parts of the mail server: mails as their receivers see them, scripted trouble."""

from __future__ import annotations

import asyncio
import contextlib
import email.policy
import re
import time
from typing import Literal

from gateway.channels.email.parse import thread_name

PEOPLE_AT = "pond.example"


class Received:
    """A mail that somebody got."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.mail = email.message_from_bytes(raw, policy=email.policy.default)

    @property
    def id(self) -> str:
        return str(self.mail["Message-ID"])

    @property
    def text(self) -> str:
        """The plain part of one without a file."""
        body = self.mail.get_body(("plain",))
        return "" if body is None or self.file is not None else str(body.get_content()).strip()

    @property
    def html(self) -> str:
        body = self.mail.get_body(("html",))
        return "" if body is None else str(body.get_content())

    @property
    def markup(self) -> bool:
        inside = self.html.partition("<body>")[2].partition("</body>")[0]
        return re.search(r"<(?!/?(?:p|br)\b)", inside) is not None

    @property
    def file(self) -> bytes | None:
        return next((bytes(part.get_payload(decode=True)) for part in self.mail.iter_attachments()), None)


class Letter:
    """A mail in the mailbox."""

    def __init__(self, uid: int, raw: bytes) -> None:
        self.uid, self.raw = uid, raw
        self.seen = False
        self.at = time.gmtime()


class Trouble:
    """The next `times` mails (to this address) go wrong; `times` -1 = all."""

    def __init__(self, kind: str, to: str | None, times: int) -> None:
        self.kind, self.to, self.times = kind, to, times

    def is_for(self, to: str) -> bool:
        return self.to in (None, to)

    def used_up(self) -> bool:
        """One less; whether that was the last one."""
        self.times -= self.times > 0
        return self.times == 0


class Wire:
    """A connection of a client, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def line(self) -> bytes:
        """b'' = the client is gone."""
        try:
            return await self._reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def say(self, *lines: str | bytes) -> None:
        """All of them at once."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(b"".join((one.encode() if isinstance(one, str) else one) + b"\r\n" for one in lines))
            await self._writer.drain()

    def cut(self) -> None:
        """The connection is gone, without a word."""
        self._writer.transport.abort()


def thread(chat: str) -> str:
    """The thread in which somebody writes."""
    return thread_name((root(chat),), "", PEOPLE_AT)


def root(chat: str) -> str:
    """The mail that began it."""
    return f"root-{chat}"


Mode = Literal["idle", "polling"]
