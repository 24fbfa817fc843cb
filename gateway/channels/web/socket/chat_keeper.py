"""Frames about a person's list of chats: chats are listed, get titles and pins, and are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.errors import BadInput
from shared.ids import session_id
from shared.messages import web
from shared.store.sessions.chat_search import ChatSearch
from shared.store.sessions.chats import LIST_LIMIT, ChatInfo, Chats
from shared.store.sessions.erase import UNDO_MS

TITLE_CHARS: Final = 120
FEATURES: Final = ("chats", "search", "export", "about", "feed", "branch", "rate", "settings")
"""Names in `welcome` by which a page knows that this gateway takes these frames."""

KeeperFrame = web.ListChatsFrame | web.LabelFrame | web.DeleteFrame | web.UndeleteFrame


class ChatKeeper:
    """Keeps the list of one principal's chats. The principal is part of every chat's name, so a
    client cannot name a chat of another principal."""

    def __init__(self, chats: Chats, search: ChatSearch, channel: str, principal: str) -> None:
        self._chats = chats
        self._search = search
        self._channel = channel
        self._principal = principal

    async def handle(self, frame: KeeperFrame) -> web.ChatListFrame | web.DeletedFrame:
        """Handle a frame and return its answer. Raises BadInput, Refused, RedisAway."""
        match frame:
            case web.ListChatsFrame(limit=limit):
                limit = min(limit, LIST_LIMIT)
                return web.ChatListFrame(await self.list(limit), whole=limit == LIST_LIMIT)
            case web.LabelFrame(chat=chat, title=title, pinned=pinned):
                if title is not None and not (title := " ".join(title.split())[:TITLE_CHARS]):
                    raise BadInput("empty", "a title needs a letter at least")
                if not await self._chats.label(self._session(chat), title=title, pinned=pinned):
                    raise BadInput("not_found", f"there is no chat {chat!r}; write to it first")
                return await self._one(chat)
            case web.DeleteFrame(chat=chat):
                await self._chats.delete(self._session(chat))
                return web.DeletedFrame(chat, UNDO_MS / 1000)
            case web.UndeleteFrame(chat=chat):
                if not await self._chats.undelete(self._session(chat)):
                    raise BadInput("too_late", "this chat is deleted for good")
                return await self._one(chat)

    async def list(self, limit: int = LIST_LIMIT) -> Sequence[web.ChatRow]:
        """Return rows of the latest chats. Raises Refused, RedisAway."""
        rows = await self._chats.latest(self._channel, self._principal, limit)
        return [self._row(row) for row in rows]

    async def rows(self, chats: Sequence[str]) -> Sequence[web.ChatRow]:
        """Return the rows of these chats, as far as they are in the list. Raises Refused, RedisAway."""
        rows = await self._chats.rows(self._channel, self._principal, [self._chat_id(chat) for chat in chats])
        return [self._row(row) for row in rows]

    async def search(self, text: str) -> web.FoundFrame:
        """Find chats by title or text. Raises BadInput, Refused, RedisAway."""
        if not (wanted := text.strip()):
            raise BadInput("empty", "there is nothing to search for")
        found, whole = await self._search.find(self._channel, self._principal, wanted)
        prefix = self._chat_id("")
        rows = [
            web.FoundRow(one.chat.chat_id.removeprefix(prefix), one.chat.title, one.chat.at, one.seq, one.excerpt)
            for one in found
        ]
        return web.FoundFrame(text, rows, whole)

    async def _one(self, chat: str) -> web.ChatListFrame:
        return web.ChatListFrame(await self.rows([chat]))

    def _row(self, one: ChatInfo) -> web.ChatRow:
        chat = one.chat_id.removeprefix(self._chat_id(""))
        shown = one.title, one.at, one.running, one.pinned, one.preset
        return web.ChatRow(chat, *shown, one.seq, one.seen, one.asks)

    def _chat_id(self, chat: str) -> str:
        return f"{self._principal}/{chat}"

    def _session(self, chat: str) -> str:
        return session_id(self._channel, self._chat_id(chat))
