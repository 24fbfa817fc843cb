"""The list of a person's chats: titles, pins, and chats that are deleted. A title is the first words
of its chat until a model or a person gives another one (`list_chat` in `lua/lib/lines.lua`). A
deleted chat leaves the list at once and the store when that can no longer be undone
(`worker/jobs/sweep.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shared.errors import Refused
from shared.ids import session_id
from shared.messages.transcript import AssistantEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value, pairs
from shared.store.schedules.agenda import score_ms
from shared.store.sessions.erase import UNDO_MARGIN_MS, UNDO_MS, written_since

LIST_LIMIT: Final = 1000  # chats of a person that are listed

_FIELDS: Final = ("title", "pin", "updated", "preset", "log", "acked", "done", "asked")


class ChatInfo(msgspec.Struct, frozen=True):
    """A row of a person's list of chats; `at` is the last activity in ms. `preset` is
    the model that the chat has chosen ("" = the usual one). `seq` is the newest line, `seen` the
    newest one that the person has seen; `asks`: a turn waits for their yes."""

    chat_id: str
    title: str
    at: int
    running: bool
    pinned: bool = False
    preset: str = ""
    seq: int = 0
    seen: int = 0
    asks: bool = False


class Chats:
    """Lists, labels and deletes chats. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def latest(self, channel: str, principal: str, limit: int = 200) -> list[ChatInfo]:
        """Return the `limit` chats of a person that were written to last, the latest activity
        first. Deleted ones are left out."""
        key = keys.chats(channel, principal)
        found = await self._client.command("ZREVRANGE", key, 0, limit - 1, "WITHSCORES")
        chats = [(chat_id.decode(errors="replace"), int(float(at))) for chat_id, at in pairs(found)]
        return await self._rows(channel, chats)

    async def _rows(self, channel: str, chats: Sequence[tuple[str, int]]) -> list[ChatInfo]:
        sessions = [session_id(channel, chat_id) for chat_id, _ in chats]
        rows = []
        read = await self._read(sessions)
        for (chat_id, written), (fields, inbox, due) in zip(chats, read, strict=True):
            title, pin, updated, preset, *counts, asked = fields
            if due is not None and not written_since(written, score_ms(due)):
                continue
            at = max(written, int(updated) if updated and updated.isdigit() else 0)
            text = (title or b"").decode(errors="replace")
            chosen = (preset or b"").decode(errors="replace")
            seq, seen, done = (int(count) if count and count.isdigit() else 0 for count in counts)
            asks = bool(inbox) and _asks(asked or b"", done)
            rows.append(ChatInfo(chat_id, text, at, bool(inbox), pin == b"1", chosen, seq, seen, asks))
        return sorted(rows, key=lambda row: -row.at)

    async def row(self, channel: str, principal: str, chat_id: str) -> ChatInfo | None:
        """Return one row of the list; None when the person has no such chat."""
        return next(iter(await self.rows(channel, principal, [chat_id])), None)

    async def rows(self, channel: str, principal: str, chat_ids: Sequence[str]) -> list[ChatInfo]:
        """Return these rows of the list, without those that the person does not have."""
        key = keys.chats(channel, principal)
        scores = await self._client.pipeline([("ZSCORE", key, chat_id) for chat_id in chat_ids])
        found = [(one, int(float(at))) for one, at in zip(chat_ids, scores, strict=True) if at is not None]
        return await self._rows(channel, found)

    async def label(self, session: str, *, title: str | None = None, pinned: bool | None = None) -> bool:
        """Give a chat another title, pin or unpin it. Return False if there is no such chat."""
        pin = "" if pinned is None else str(int(pinned))
        return bool(await self._client.run("sessions/label", session=session, title=title or "", pin=pin))

    async def delete(self, session: str) -> None:
        """Delete a chat with everything, soon. Until then `undelete` takes it back, and so does a
        message to it."""
        await self._client.run("sessions/bin", session=session, delay_ms=UNDO_MS + UNDO_MARGIN_MS)

    async def undelete(self, session: str) -> bool:
        """Take a deletion back. Return False when it is too late."""
        return bool(await self._client.run("sessions/bin", session=session, delay_ms=""))

    def _keys(self, session: str) -> list[str]:
        return [keys.EPHEMERAL, keys.session(session)]

    async def _read(self, sessions: Sequence[str]) -> list[list[Any]]:
        """Read what the list shows of each session."""
        try:
            return await self._read_rows(sessions)
        except Refused:
            # One of the chats is broken: the others keep their titles.
            rows: list[list[Any]] = []
            for session in sessions:
                try:
                    rows += await self._read_rows([session])
                except Refused:
                    rows.append([(None,) * len(_FIELDS), 0, None])
            return rows

    async def _read_rows(self, sessions: Sequence[str]) -> list[list[Any]]:
        commands: list[tuple[Value, ...]] = []
        for one in sessions:
            commands.append(("HMGET", keys.session(one), *_FIELDS))
            commands += ("EXISTS", keys.inbox(one)), ("ZSCORE", keys.EPHEMERAL, one)
        answers = await self._client.pipeline(commands)
        return [answers[at : at + 3] for at in range(0, len(answers), 3)]


def _asks(asked: bytes, done: int) -> bool:
    """Tell whether the question in field `asked` (`waits/park.lua`) waits for an answer."""
    state, _, _, _, turn = (*asked.split(b" "), *[b""] * 5)[:5]
    return state == b"open" and turn.isdigit() and int(turn) > done


class UntitledChat(msgspec.Struct, frozen=True):
    """A chat that may get a title: its first words as they are shown, the generation of its
    conversation, its preset, and the texts of the oldest message and the newest answer."""

    session: str
    words: str
    gen: str
    preset: str
    question: str
    answer: str


class Titles:
    """Finds chats without a title, and gives them one. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def find_untitled(self, session: str) -> UntitledChat | None:
        """Return a chat whose title is its first words; None for another one, and where the
        conversation is empty."""
        # The generation is read first: a title made of an older conversation is then refused.
        fields, first, last = await self._client.pipeline(
            [
                ("HMGET", keys.session(session), "titled", "title", "gen", "preset"),
                ("LINDEX", keys.history(session), 0),
                ("LINDEX", keys.history(session), -1),
            ]
        )
        titled, title, gen, preset = fields
        if titled != b"words" or first is None:
            return None
        words = (title or b"").decode(errors="replace")
        generation = (gen or b"0").decode()
        chosen = (preset or b"").decode(errors="replace")
        return UntitledChat(session, words, generation, chosen, _text(first, UserEntry), _text(last, AssistantEntry))

    async def set_title(self, chat: UntitledChat, title: str) -> bool:
        """Give the chat this title; with "" its first words stay for good. Return False if it has
        another title or conversation by now."""
        words = chat.words
        gen = chat.gen
        done = await self._client.run("sessions/title", session=chat.session, title=title, words=words, gen=gen)
        return bool(done)


def _text(record: bytes, wanted: type[UserEntry | AssistantEntry]) -> str:
    """Return the text of an entry of this type; "" for another one, and one that cannot be read."""
    entry = decode_transcript.or_none(record)
    return entry.content or "" if isinstance(entry, wanted) else ""
