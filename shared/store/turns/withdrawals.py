"""Withdrawal of a waiting message, before a turn begins with it."""

from __future__ import annotations

from typing import Final, Literal

from shared.ids import session_id
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits

WithdrawalOutcome = Literal["withdrawn", "unknown", "answering", "over"]
"""Outcomes: the message gets no turn (also when it was withdrawn before); it is not known here;
a turn has begun with it; its turn is over."""

_ANSWERS: Final[dict[int, WithdrawalOutcome]] = {
    1: "withdrawn",
    2: "withdrawn",
    0: "unknown",
    -1: "answering",
    -2: "over",
}


class Withdrawals:
    """Withdraws messages."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def withdraw(
        self, channel: str, chat_id: str, id: str, *, thread: str | None = None, at_ms: int = 0
    ) -> WithdrawalOutcome:
        """Withdraw the message `id` if no turn has begun with it; a line of the chat's log then
        says so.

        `at_ms` is the time of that line. Raises RedisAway.
        """
        session, limits = session_id(channel, chat_id if thread is None else f"{chat_id}#{thread}"), self._limits
        line = OutboundMessage(content="Withdrawn.", turn=0, in_reply_to=(id,), kind="withdrawn", at=at_ms)
        # One script decides between a withdrawal and a claim, so a message is never both.
        done, _ = await self._client.run(
            "turns/withdraw",
            [
                keys.inbox(session), keys.session(session), keys.queue(TURNS), keys.leases(TURNS), keys.wake(TURNS),
                keys.outbox(session), keys.live(session), keys.ledger(session),
            ],
            [
                f"{chat_id}/{id}", keys.seen(channel), limits.seen_days, keys.turn(session), encode(line),
                limits.session_days * DAY_MS, limits.log_days * DAY_MS,
            ],
        )  # fmt: skip
        return _ANSWERS[done]
