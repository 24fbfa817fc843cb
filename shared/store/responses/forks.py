"""The conversation of a session up to one of its turns, with which another session may begin."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from shared.messages.codec import encode
from shared.messages.sources import Sources, merge_sources
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.transcripts import TranscriptPage, Transcripts

MOST_ENTRIES: Final = 100
_PAGE: Final = 1000


class Fork(msgspec.Struct, frozen=True):
    """Entries of a conversation, oldest first, as those of another session: they belong to no turn
    there. `sources` mark it."""

    entries: tuple[TranscriptEntry, ...] = ()
    sources: Sources = ()


class Forks:
    """Reads conversations as they were at the end of a turn."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._transcripts = Transcripts(client)

    async def read_fork(self, session: str, turn: int, *, limit_bytes: int) -> Fork | None:
        """Return the newest entries up to the end of a turn, at most MOST_ENTRIES of `limit_bytes`;
        None while the turn is not over. Nothing is left of a turn before `/new`. What was read of
        a turn that is over never changes. Raises RedisAway."""
        waiting, began = await self._client.pipeline(
            [
                ("XRANGE", keys.inbox(session), f"{turn}-0", f"{turn}-0"),
                ("HGET", keys.session(session), "began"),
            ]
        )
        if waiting:
            return None
        # Without `/new` the conversation may begin with entries of turn 0, which a program sent.
        after = int(began) if began else -1
        found: list[TranscriptEntry] = []
        before = ""
        while True:
            page = await self._transcripts.read_back(session, before, limit=_PAGE)
            whole = _add(found, page, after, turn, limit_bytes)
            if whole or not (before := page.before):
                return _fork(found)


def _add(found: list[TranscriptEntry], page: TranscriptPage, after: int, until: int, limit_bytes: int) -> bool:
    """Add the entries of a page to those found so far, newest first. Return whether these are all."""
    size = sum(len(encode(entry)) for entry in found)
    for record in reversed(page.records):
        entry = decode_transcript.or_none(record)
        if entry is None or entry.turn > until:
            continue
        if entry.turn <= after:
            return True
        entry = _in_fork(entry, page)
        size += len(encode(entry))
        if len(found) == MOST_ENTRIES or size > limit_bytes:
            return True
        found.append(entry)
    return False


def _in_fork(entry: TranscriptEntry, page: TranscriptPage) -> TranscriptEntry:
    """Return an entry as one of another session. Thoughts stay behind."""
    sources = page.trusted.left_of(entry.turn, entry.sources)
    if isinstance(entry, AssistantEntry):
        return replace(entry, turn=0, sources=sources, reasoning=None, seen="")
    return replace(entry, turn=0, sources=sources)


def _fork(found: list[TranscriptEntry]) -> Fork:
    entries = found[::-1]
    # A turn that was cut in two would begin with results whose calls are missing.
    begin = next((at for at, entry in enumerate(entries) if isinstance(entry, UserEntry)), 0)
    entries = entries[begin:]
    return Fork(tuple(entries), merge_sources(*(entry.sources for entry in entries)))
