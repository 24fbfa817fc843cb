"""Stored responses: what a program asked for, and where its answer is, until they expire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.ids import is_stored
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.requests import ANSWER_LIMIT_BYTES, ApiRequest

MOST: Final = 10_000  # responses that a principal keeps
AT_ONCE: Final = 20  # responses of a session that are read together
DAY_MS: Final = 86_400_000


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `turn` is the number of its message in the session, `after` the chat's last line
    before it; `shown` and `input` are JSON of the API. `answer` is None while nobody has stored it:
    it may be in the log of its chat. `continues`: it goes on with that turn, which waited for what it
    submitted."""

    id: str
    session: str
    turn: int
    at_ms: int
    after: int
    shown: bytes
    input: bytes
    answer: bytes | None = None
    continues: bool = False


class ResponseStart(msgspec.Struct, frozen=True):
    """The beginning of a response in the log of its chat: see `StoredResponse`."""

    id: str
    turn: int
    after: int
    continues: bool

    def ends_with(self, line: OutboundMessage) -> bool:
        """Return whether a line after `after` ends the response: the first one that does counts."""
        named = self.id in line.in_reply_to
        return named or (self.continues and bool(line.in_reply_to) and line.turn == self.turn)


class Responses:
    """Keeps the responses of every principal for `days`. Methods raise RedisAway."""

    def __init__(self, client: RedisClient, *, days: int = 30, most: int = MOST) -> None:
        self._client = client
        self._keep_ms = days * DAY_MS
        self._most = most

    async def keep(
        self, principal: str, asked: ApiRequest, turn: int, *, shown: bytes, input: bytes, continues: bool = False
    ) -> bool:
        """Store what was asked, once its message is accepted; a repetition changes nothing. False:
        its session was erased meanwhile. Raises Refused when the store is full."""
        kept = await self._client.run(
            "responses/keep",
            session=asked.session,
            response=keys.response(asked.ticket),
            kept=keys.kept_responses(principal),
            id=asked.ticket,
            by=principal,
            n=turn,
            at=asked.at_ms,
            after=asked.after,
            shown=shown,
            input=input,
            continues=int(continues),
            unnamed=int(is_stored(asked.session)),
            most=self._most,
            keep_ms=self._keep_ms,
        )
        return bool(kept)

    async def lookup(self, principal: str, id: str) -> StoredResponse | None:
        """Read a response; None if this principal has no such one, or not any more."""
        fields = ("by", "session", "n", "at", "after", "shown", "input", "answer", "continues")
        by, session, turn, at_ms, after, shown, input, answer, continues = await self._client.command(
            "HMGET", keys.response(id), *fields
        )
        if by is None or by.decode() != principal:
            return None
        return StoredResponse(
            id=id,
            session=session.decode(),
            turn=int(turn),
            at_ms=int(at_ms),
            after=int(after),
            shown=shown,
            input=input,
            answer=answer,
            continues=continues == b"1",
        )

    async def find_newest(self, principal: str, session: str) -> StoredResponse | None:
        """Read the response that was asked for last in a session of this principal; None if there
        is none."""
        newest = await self._client.command("ZRANGE", keys.responses(session), -1, -1)
        return await self.lookup(principal, newest[0].decode()) if newest else None

    async def starts(self, session: str, ids: Sequence[str]) -> list[ResponseStart]:
        """Return where responses begin: those of `ids` that are stored, and of this session."""
        fields = ("session", "n", "after", "continues")
        rows = await self._client.pipeline([("HMGET", keys.response(id), *fields) for id in ids]) if ids else []
        return [
            ResponseStart(id, int(turn or 0), int(after or 0), continues == b"1")
            for id, (its, turn, after, continues) in zip(ids, rows, strict=True)
            if its is not None and its.decode() == session
        ]

    async def continuing(self, session: str, turn: int, *, since: int) -> list[ResponseStart]:
        """Return responses that go on with a turn of a session after it asked for functions in line
        `since`, however many newer ones the session has."""
        found: list[ResponseStart] = []
        last = -1
        while True:
            # The newest are last.
            ids = await self._client.command("ZRANGE", keys.responses(session), last - AT_ONCE + 1, last)
            starts = await self.starts(session, [id.decode() for id in ids])
            found += [start for start in starts if start.continues and start.turn == turn and start.after >= since]
            if len(ids) < AT_ONCE or all(start.after < since for start in starts):
                return found
            last -= AT_ONCE

    async def read_answer(self, id: str) -> bytes | None:
        """Read the stored answer, perhaps of another gateway; None while there is none."""
        answer: bytes | None = await self._client.command("HGET", keys.response(id), "answer")
        return answer

    async def store_answer(self, id: str, answer: bytes) -> bool:
        """Store the answer, unless there is one. False: it must be read from the log again."""
        if len(answer) > ANSWER_LIMIT_BYTES:
            return False
        stored = await self._client.run(
            "sessions/request_end", request=keys.response(id), ticket=id, answer=answer, keep_ms=self._keep_ms
        )
        return bool(stored)

    async def drop(self, principal: str, response: StoredResponse) -> bool:
        """Delete a response. Return whether its session ends with it, which has no other one."""
        left = await self._client.run(
            "responses/drop",
            session=response.session,
            response=keys.response(response.id),
            id=response.id,
            by=principal,
        )
        return left == 0 and is_stored(response.session)
