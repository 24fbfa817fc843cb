"""Ratings of answers: a thumb up or down, kept as a line of the chat's log. The newest line about an
answer counts."""

from __future__ import annotations

from collections.abc import Iterable

from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput
from shared.messages.codec import encode
from shared.messages.outbound import AnswerRating, LogLine, OutboundMessage, Rating
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.turns.inbox import InboxLimits


def is_answer(line: LogLine) -> bool:
    """Tell whether a line is an answer that a turn ended with."""
    return isinstance(line, OutboundMessage) and line.kind in ("reply", "stopped") and bool(line.content)


def ratings_of(lines: Iterable[NumberedLine]) -> dict[int, Rating]:
    """Return the rating of each rated line, by its number, as lines in their order have it."""
    rated = [one.line.rated for one in lines if isinstance(one.line, OutboundMessage) and one.line.rated]
    newest = {one.seq: one.rating for one in rated}
    return {seq: rating for seq, rating in newest.items() if rating}


class Ratings:
    """Rates answers."""

    def __init__(self, client: RedisClient, limits: InboxLimits) -> None:
        self._client = client
        self._outbox = Outbox(client)
        self._log_ms = limits.log_ms

    async def rate(self, session: str, seq: int, rating: Rating) -> None:
        """Rate the answer of this number, or take its rating back. Raises BadInput for a line that is
        not an answer, Refused, RedisAway."""
        found = await self._outbox.read_before(session, seq=seq + 1, limit=1)
        if not found or found[0].seq != seq or not is_answer(found[0].line):
            raise BadInput("not_found", f"line {seq} of this chat is not an answer")
        # Releases before know this kind: it names no message, so they show nothing.
        line = OutboundMessage(
            content="", turn=0, kind="withdrawn", at=SYSTEM_CLOCK.now_ms(), rated=AnswerRating(seq, rating)
        )
        done = await self._client.run("answers/rate", session=session, line=encode(line), keep_log_ms=self._log_ms)
        if not done:
            raise BadInput("not_found", "there is no such chat")
