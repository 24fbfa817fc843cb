"""Functions of a program: a turn asks it to run them and waits without a slot; results count once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.ids import split_session
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS, InboxLimits, background_limit, places_of

CLIENT_TOOLS: Final = "tools of the client"
"""The source with which results of a program's functions mark a turn."""

SubmitOutcome = Literal["done", "known", "unknown", "missing", "used", "late", "over", "held", "full"]


class Submitted(msgspec.Struct, frozen=True):
    """Outcome of a submission, as submit.lua has it: the number of the turn, and the ids of calls
    that are `unknown` or `missing`."""

    outcome: SubmitOutcome
    turn: int
    ids: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.outcome in ("done", "known")


class ClientCalls:
    """Reads what turns wait for, and takes the results of their programs."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def submit(
        self,
        session: str,
        outputs: Mapping[str, str],
        *,
        request: str,
        cap_bytes: int,
        principal: str = "",
        background: bool = False,
        retry_for_s: float = 0.0,
    ) -> Submitted:
        """Submit the results of all calls that the turn of a session waits for, once; it goes on at
        once, on any worker. The same `request` again gets its first answer. It is that of
        `principal`, perhaps for a response in the `background`. Raises Refused (`background_limit`),
        RedisAway."""
        channel, chat_id = split_session(session)
        limits = self._limits
        crash_point("before_submit")
        outcome, turn, ids = await self._client.run(
            "waits/submit",
            session=session,
            queue=TURNS,
            member=keys.turn(session),
            outputs=pack([text for output in outputs.items() for text in output]),
            source=CLIENT_TOOLS,
            dedupe_id=f"{chat_id}/{request}",
            seen=keys.seen(channel),
            days=limits.seen_days,
            cap_bytes=cap_bytes,
            places=places_of(principal),
            background=int(background),
            most_places=limits.background_at_once,
            response=request,
            keep_session_ms=limits.keep_ms(session),
            retry_for_s=retry_for_s,
        )
        crash_point("after_submit")
        if outcome == b"crowded":
            raise background_limit(limits)
        known: SubmitOutcome = msgspec.convert(outcome.decode(), SubmitOutcome)
        return Submitted(known, turn, tuple(ids.decode().split()))

    async def waiting(self, session: str) -> tuple[str, ...]:
        """Return the ids of the calls that the turn of a session waits for. Raises RedisAway."""
        asked: bytes = await self._client.command("HGET", keys.session(session), "asked") or b""
        fields = asked.decode().split()
        return tuple(fields[6:]) if fields[:1] == ["calls"] else ()
