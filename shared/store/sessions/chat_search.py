"""Search in the titles and texts of one person's chats. It reads logs and pages as they are: there
is no index to keep, and a chat that was deleted is not found."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from shared.clock import SYSTEM_CLOCK
from shared.ids import session_id
from shared.messages.outbound import UserLine
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.sessions.chats import LIST_LIMIT, ChatInfo, Chats

FOUND_LIMIT: Final = 50
WITHIN_S: Final = 1.5
BATCH: Final = 200
BEFORE_CHARS: Final = 40
EXCERPT_CHARS: Final = 160


class FoundChat(msgspec.Struct, frozen=True):
    """A chat in which a text was found: its newest line with it (0: only the title has it)."""

    chat: ChatInfo
    seq: int
    excerpt: str


class ChatSearch:
    """Finds chats by their texts. Every method raises RedisAway and Refused."""

    def __init__(self, client: RedisClient) -> None:
        self._chats, self._outbox = Chats(client), Outbox(client)

    async def find(self, channel: str, principal: str, text: str) -> tuple[list[FoundChat], bool]:
        """Return chats whose title or a line contains `text` in any case, the latest first, and
        whether all chats were searched: it ends after FOUND_LIMIT chats or WITHIN_S."""
        wanted = text.casefold()
        found = list[FoundChat]()
        ends = SYSTEM_CLOCK.monotonic() + WITHIN_S
        for chat in await self._chats.latest(channel, principal, LIST_LIMIT):
            session = session_id(channel, chat.chat_id)
            if wanted in chat.title.casefold():
                found.append(FoundChat(chat, 0, ""))
            elif (hit := await self._find_line(session, wanted, ends)) is not None:
                found.append(FoundChat(chat, hit[0], hit[1]))
            if len(found) == FOUND_LIMIT or SYSTEM_CLOCK.monotonic() > ends:
                return found, False
        return found, True

    async def _find_line(self, session: str, wanted: str, ends: float) -> tuple[int, str] | None:
        """Return number and excerpt of the newest line of a chat that has the text."""
        before: int | None = None
        while lines := await self._outbox.read_before(session, seq=before, limit=BATCH):
            for numbered in reversed(lines):
                text = line_text(numbered)
                if (at := text.casefold().find(wanted)) >= 0:
                    start = max(0, at - BEFORE_CHARS)
                    excerpt = " ".join(text[start : start + EXCERPT_CHARS].split())
                    return numbered.seq, f"…{excerpt}" if start else excerpt
            before = lines[0].seq
            if len(lines) < BATCH or before == 1 or SYSTEM_CLOCK.monotonic() > ends:
                break
            await asyncio.sleep(0)  # other sockets of this process go on
        return None


def line_text(numbered: NumberedLine) -> str:
    """Return the text of a line, whoever wrote it."""
    line = numbered.line
    return line.text if isinstance(line, UserLine) else line.content
