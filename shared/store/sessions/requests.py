"""Requests over HTTP, found by their keys, and their stored answers."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from shared.errors import ShoalError
from shared.ids import API, KEEP_MS, MARK, STORED, session_id
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.sessions.details import change_metadata

UNACCEPTED_MS: Final = 10 * 60_000  # life of a request whose message was not accepted yet
UNASKED_MS: Final = 2 * 3_600_000
"""Life of the session of a request without a key, whose answer nobody can ask for."""

ANSWER_LIMIT_BYTES: Final = 256 * 1024
"""Largest stored answer; a longer one is read again from the log of its chat."""


class KeyReused(ShoalError):
    """The key belongs to a request with other contents."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its progress. `key` is where its answer is kept, `""` without one; `ticket` is
    the id of its message, `after` the chat's last line before it."""

    key: str
    session: str
    ticket: str
    at_ms: int
    after: int
    new: bool
    answer: bytes | None = None


class Requests:
    """Finds requests by a person's keys, each of one request for a day. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def begin(
        self,
        principal: str,
        *,
        key: str | None,
        session: str | None,
        asked: str,
        stored: bool = False,
        ticket: str = "",
    ) -> ApiRequest:
        """Find the request with this key, or register a new one. Without a `session` it gets one of
        its own, named by its ticket: one that can be continued if its response is `stored`. `asked`
        is a hash of everything that the answer depends on. A new request gets the `ticket`, or a random one.
        Raises KeyReused, and Refused when the store is full."""
        kept = ""
        if key is not None:
            digest = hashlib.sha256(f"{principal}\0{key}".encode()).hexdigest()[:32]
            kept = keys.request_answer(digest)
        # The script appends the ticket, which only it knows when the key is new.
        own = session_id(API, f"{principal}/{STORED if stored else MARK}")
        begun, kept_ticket, at_ms, after, answer = await self._client.run(
            "sessions/request_begin",
            request=kept,
            own_session="" if session is None else keys.session(session),
            asked=asked,
            ticket=ticket or secrets.token_hex(16),
            prefix=own,
            keep_ms=UNACCEPTED_MS,
        )
        if begun == b"reused":
            raise KeyReused(f"something else was asked under the key {key!r}; use a new one for a new request")
        name = kept_ticket.decode()
        return ApiRequest(
            key=kept,
            session=session or f"{own}{name}",
            ticket=name,
            at_ms=at_ms,
            after=after,
            new=begun == b"begun",
            answer=answer or None,
        )

    async def fork(self, principal: str, asked: ApiRequest) -> ApiRequest:
        """Return the request in a session of its own, in place of the one that it was registered
        for; the same one each time."""
        session = f"{session_id(API, f'{principal}/{STORED}')}{asked.ticket}"
        # Deleted even if the gateway dies at this moment, after the last repetition under its key.
        # NX: once the response is stored the session is kept as long as that.
        until_ms = asked.at_ms + KEEP_MS + UNACCEPTED_MS
        await self._client.command("ZADD", keys.EPHEMERAL, "NX", until_ms, session)
        return replace(asked, session=session, after=0)

    async def mark_accepted(self, asked: ApiRequest, *, ephemeral: bool) -> None:
        """Record that the request's message is durable: from now on it is kept for a day."""
        commands: list[tuple[Value, ...]] = []
        if asked.key:
            commands.append(("PEXPIRE", asked.key, KEEP_MS))
        if ephemeral:
            until_ms = asked.at_ms + (KEEP_MS if asked.key else UNASKED_MS)
            commands.append(("ZADD", keys.EPHEMERAL, "XX", until_ms, asked.session))
        if commands:
            await self._client.pipeline(commands)

    async def read_answer(self, asked: ApiRequest) -> bytes | None:
        """Read the stored answer, perhaps of another gateway; None while there is none."""
        if not asked.key:
            return None
        stored: bytes | None = await self._client.command("HGET", asked.key, "answer")
        return stored

    async def store_answer(self, asked: ApiRequest, answer: bytes) -> bool:
        """Store the answer for a day. False: it must be read from the log again."""
        return len(answer) <= ANSWER_LIMIT_BYTES and await self._finish(asked, answer)

    async def describe(self, asked: ApiRequest, metadata: Mapping[str, str]) -> None:
        """Note metadata about the session. Raises BadInput where it would be too much,
        RedisAway."""
        await change_metadata(self._client, asked.session, metadata)

    async def release(self, asked: ApiRequest) -> None:
        """Free the key of a request that came to nothing, so that it can be used again."""
        await self._finish(asked, b"")

    async def _finish(self, asked: ApiRequest, answer: bytes) -> bool:
        if not asked.key:
            return False
        stored = await self._client.run(
            "sessions/request_end", request=asked.key, ticket=asked.ticket, answer=answer, keep_ms=KEEP_MS
        )
        return bool(stored)
