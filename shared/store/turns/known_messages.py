"""Messages that were accepted before: known ones, edited ones, and withdrawn ones."""

from __future__ import annotations

from typing import Literal

from shared.ids import session_id
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS, InboxLimits

WithdrawalOutcome = Literal["withdrawn", "unknown", "answering", "over"]
"""Outcomes: the message gets no turn (also when it was withdrawn before); it is not known here;
a turn has begun with it; its turn is over."""


class SeenMessages:
    """Reads the ids that ingest stores, which are kept for some days. Methods raise RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._days = InboxLimits().seen_days

    async def knows(self, message: InboundMessage) -> bool:
        """Tell whether a message was seen before. False may be wrong: ingest decides."""
        id = f"{message.chat_id}/{message.id}"
        return bool(
            await self._client.run("dedupe/knows", seen=keys.seen(message.channel), days=self._days, dedupe_id=id)
        )

    async def new_form(self, message: InboundMessage, of: str) -> str:
        """Record a new form of the message `of`; return the id before this one, also to a repeated
        call."""
        return await self._ask(message, of, message.id)

    async def newest_form(self, message: InboundMessage) -> str:
        """Return the id of the newest form of a message; its own id when it was never edited."""
        return await self._ask(message, message.id, "")

    async def _ask(self, message: InboundMessage, first: str, form: str) -> str:
        newest: bytes = await self._client.run(
            "dedupe/newest_form",
            seen=keys.seen(message.channel),
            days=self._days,
            first_key=f"{message.chat_id}/{first}",
            first=first,
            form=form,
        )
        return newest.decode()


class Withdrawals:
    """Withdraws messages that wait, before a turn begins with them."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def withdraw(
        self, channel: str, chat_id: str, id: str, *, thread: str | None = None, at_ms: int = 0
    ) -> WithdrawalOutcome:
        """Withdraw the message `id` if no turn has begun with it; a line of the chat's log then
        says so, with the time `at_ms`. Raises RedisAway."""
        session = session_id(channel, chat_id if thread is None else f"{chat_id}#{thread}")
        limits = self._limits
        text = "Withdrawn."
        line = OutboundMessage(content=text, turn=0, in_reply_to=(id,), kind="withdrawn", at=at_ms)
        # One script decides between a withdrawal and a claim, so a message is never both.
        done = await self._client.run(
            "turns/withdraw",
            session=session,
            queue=TURNS,
            dedupe_id=f"{chat_id}/{id}",
            seen=keys.seen(channel),
            days=limits.seen_days,
            member=keys.turn(session),
            line=encode(line),
            keep_session_ms=limits.session_ms,
            keep_log_ms=limits.log_ms,
        )
        outcome: WithdrawalOutcome = done.decode()
        return outcome
