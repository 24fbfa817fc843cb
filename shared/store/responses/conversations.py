"""Conversations of programs: named sessions that are begun, read and changed without a turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from shared.errors import Refused
from shared.ids import API, split_session
from shared.messages.codec import encode
from shared.messages.sources import Sources, pack_sources
from shared.messages.transcript import TranscriptEntry
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import forget_media
from shared.store.sessions.details import FIELDS, SessionDetails, change_metadata, pack_metadata, parse_details
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import ApiRequest
from shared.store.sessions.transcripts import Transcripts
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES

TRIES: Final = 10
_ALL: Final = 1_000_000  # more entries than a conversation can have outside of its transcript

AddOutcome = Literal["done", "known", "no_session", "running", "chat_limit"]
DropOutcome = Literal["done", "running", "gone"]
MakeEntries = Callable[[int], Sequence[TranscriptEntry]]
"""Returns the entries with the number that they get in their session."""


class AddedItems(msgspec.Struct, frozen=True):
    """Outcome of an addition, and the number that the entries have in their session."""

    outcome: AddOutcome
    number: int


class Conversations:
    """Begins, reads and changes named sessions. Methods raise RedisAway."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()
        self._transcripts = Transcripts(client)
        self._sessions = EphemeralSessions(client)

    async def lookup(self, session: str) -> SessionDetails | None:
        """Return age and metadata of a session, None if there is no such one."""
        exists, details = await self._client.pipeline(
            [("EXISTS", keys.session(session)), ("HMGET", keys.session(session), *FIELDS)]
        )
        return parse_details(*details) if exists else None

    async def begin(
        self, principal: str, asked: ApiRequest, session: str, make: MakeEntries, sources: Sources, meta: dict[str, str]
    ) -> AddedItems:
        """Begin a session with these entries and metadata; the same request changes nothing again.
        Raises BadInput for metadata, Refused when the store is full."""
        packed = pack_metadata(meta) if meta else b""
        return await self._add(principal, asked, session, make, sources, create=True, meta=packed)

    async def add(
        self, principal: str, asked: ApiRequest, session: str, make: MakeEntries, sources: Sources
    ) -> AddedItems:
        """Add entries to a session in which no message waits. Raises Refused when the store is
        full, or when the session keeps changing."""
        return await self._add(principal, asked, session, make, sources)

    async def _add(
        self,
        principal: str,
        asked: ApiRequest,
        session: str,
        make: MakeEntries,
        sources: Sources,
        *,
        create: bool = False,
        meta: bytes = b"",
    ) -> AddedItems:
        limits = self._limits
        chat_id = split_session(session)[1]
        for _ in range(TRIES):
            counter = int(await self._client.command("HGET", keys.session(session), "n") or 0)
            outcome, number = await self._client.run(
                "responses/add_items",
                session=session,
                chats=keys.chats(API, principal),
                create=int(create),
                counter=counter,
                records=pack([encode(entry) for entry in make(counter + 1)]),
                sources=pack_sources(sources),
                meta=meta,
                dedupe_id=f"{chat_id}/{asked.ticket}",
                seen=keys.seen(API),
                days=limits.seen_days,
                chat_id=chat_id,
                most_chats=limits.of_chats(API),
                keep_session_ms=limits.keep_ms(session),
                history_bytes=HISTORY_CAP_BYTES,
            )
            if outcome != b"changed":
                return AddedItems(msgspec.convert(outcome.decode(), AddOutcome), number)
        raise Refused("busy", "this conversation changes faster than this can be done; try again", 1)

    async def set_metadata(self, session: str, metadata: Mapping[str, str]) -> bool:
        """Replace the metadata of a session. Return False if there is no such one. Raises
        BadInput."""
        return await change_metadata(self._client, session, metadata, replace=True)

    async def records(self, session: str) -> list[bytes]:
        """Return every entry that is kept of a session, oldest first."""
        pages: list[Sequence[bytes]] = []
        before = ""
        while True:
            page = await self._transcripts.read_back(session, before, limit=_ALL)
            pages.append(page.records)
            if not (before := page.before):
                return [record for records in reversed(pages) for record in records]

    async def drop(self, session: str, record: bytes) -> DropOutcome:
        """Remove an entry from the conversation that the model reads."""
        outcome = await self._client.run("responses/drop_item", session=session, record=record)
        dropped: DropOutcome = msgspec.convert(outcome.decode(), DropOutcome)
        return dropped

    async def end(self, principal: str, session: str) -> None:
        """Delete a session with all that is kept of it; a turn that runs is stopped. A worker
        deletes its files."""
        head = await self._client.command("XRANGE", keys.inbox(session), "-", "+", "COUNT", 1)
        turn = int(head[0][0].partition(b"-")[0]) if head else 0
        # First from the list: the sweep spares a chat that was written to after its deletion.
        await self._client.command("ZREM", keys.chats(API, principal), split_session(session)[1])
        await self._sessions.end(session, turn)
        # The sweep would do it, too, unless a program begins the same name again until then.
        await forget_media(self._client, session)


def record_id(record: bytes) -> str:
    """Return what names an entry in its conversation, wherever it is kept."""
    return hashlib.sha1(record, usedforsecurity=False).hexdigest()[:24]
