"""Requests over HTTP: which one a key means, and what it was answered."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import msgspec

from shared.ephemeral import API, KEEP_MS, MARK, ephemeral_chat
from shared.errors import ShoalError
from shared.ids import session_id
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import load

UNACCEPTED_MS: Final = 10 * 60_000
"""How long a request is known whose message nobody has taken."""

UNASKED_MS: Final = 2 * 3_600_000
"""How long the session of a request without a key stays, should its gateway die: nobody can ask for
its answer."""

ANSWER_LIMIT_BYTES: Final = 256 * 1024
"""A longer answer is read again from the log of its chat, which is kept as long."""


class KeyReused(ShoalError):
    """Something else was asked under this key."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and where it stands. `key` is where its answer is kept, `""` for one without a key;
    `ticket` is the id of its message, `after` the number of the last line of its chat's log before
    it, `answer` what it was answered."""

    key: str
    session: str
    ticket: str
    at_ms: int
    after: int
    new: bool
    answer: bytes | None = None


class Requests:
    """Finds requests by their keys. A key is one person's own, and means one request for a day.
    Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._begin, self._end = load("sessions/request_begin"), load("sessions/request_end")

    async def begin(self, principal: str, *, key: str | None, session: str | None, asked: str) -> ApiRequest:
        """The request that has this key, or a new one. Without a `session` it has one of its own,
        named by its ticket. `asked` is a hash of everything that its answer depends on.

        Raises KeyReused, and Refused when the store is full.
        """
        kept = "" if key is None else keys.request_answer(_hash(principal, key))
        passing = session_id(API, f"{principal}/{MARK}")
        begun, ticket, at_ms, after, answer = await self._client.run(
            self._begin,
            [kept, "" if session is None else keys.session(session), keys.EPHEMERAL],
            [asked, secrets.token_hex(16), passing, UNACCEPTED_MS],
        )
        if begun < 0:
            raise KeyReused(f"something else was asked under the key {key!r}; use a new one for a new request")
        name = ticket.decode()
        return ApiRequest(
            key=kept,
            session=session or session_id(API, ephemeral_chat(principal, name)),
            ticket=name,
            at_ms=at_ms,
            after=after,
            new=begun == 1,
            answer=answer or None,
        )

    async def mark_accepted(self, asked: ApiRequest, *, ephemeral: bool) -> None:
        """Its message is durable: from now on it counts for a day."""
        commands: list[tuple[Value, ...]] = []
        if asked.key:
            commands.append(("PEXPIRE", asked.key, KEEP_MS))
        if ephemeral:
            until_ms = asked.at_ms + (KEEP_MS if asked.key else UNASKED_MS)
            commands.append(("ZADD", keys.EPHEMERAL, "XX", until_ms, asked.session))
        if commands:
            await self._client.pipeline(commands)

    async def read_answer(self, asked: ApiRequest) -> bytes | None:
        """What it was answered, perhaps through another gateway."""
        stored: bytes | None = await self._client.command("HGET", asked.key, "answer") if asked.key else None
        return stored

    async def store_answer(self, asked: ApiRequest, answer: bytes) -> bool:
        """Keep its answer for a day; False when that is not possible, and it must be read from the
        log again."""
        if not asked.key or len(answer) > ANSWER_LIMIT_BYTES:
            return False
        done: int = await self._client.run(self._end, [asked.key], [asked.ticket, answer, KEEP_MS])
        return done == 1

    async def release(self, asked: ApiRequest) -> None:
        """Nothing came of it: the same key asks anew."""
        if asked.key:
            await self._client.run(self._end, [asked.key], [asked.ticket, b"", KEEP_MS])


def _hash(principal: str, key: str) -> str:
    return hashlib.sha256(f"{principal}\0{key}".encode()).hexdigest()[:32]
