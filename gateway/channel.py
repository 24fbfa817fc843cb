"""The protocols between the channels of a gateway and the rest of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine
from shared.messages.web import CommandRow
from shared.store.delivery.outbox import NumberedLine
from shared.store.turns.approvals import ApprovalOutcome
from shared.store.turns.inbox import Accepted
from shared.store.turns.withdrawals import WithdrawalOutcome


class ChannelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a channel. `text_bytes` is the size of the longest message a person may
    send."""

    text_bytes: int


class MessageSink(Protocol):
    """The way in of a gateway, as a channel sees it: `gateway.ingress.ingest.Ingress`."""

    @property
    def commands(self) -> Sequence[CommandRow]:
        """The chat commands of this gateway, for channels that can offer them."""
        ...

    async def ingest(
        self,
        message: InboundMessage,
        *,
        show: LogLine | None = None,
        principal: str | None = None,
        notice: bool = False,
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Make a message durable, once; turn 0 in the result means that it was a command and is
        answered already.

        `show` is written into the chat's log with it: the person's text where people read the log,
        or a notice about it. With `notice` a refusal is written into the log too, once a minute,
        for channels that cannot show one at the message; except `overloaded`, for that message
        comes again. The caller counts refusals (`MESSAGES_REFUSED`). Raises BadInput, Refused,
        RedisAway.
        """
        ...

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """End `turn`, or the turn at the head of `session`; return its number, None when nothing
        runs. Raises RedisAway."""
        ...

    async def approve(self, session: str, id: str, *, yes: bool, sender: str, digest: str = "") -> ApprovalOutcome:
        """Answer the question whether a tool may run, in the name of `sender`. Raises RedisAway."""
        ...

    async def withdraw(self, channel: str, chat_id: str, id: str, *, thread: str | None = None) -> WithdrawalOutcome:
        """Withdraw a message, unless a turn has begun with it. Raises RedisAway."""
        ...


class Channel(Protocol):
    """One way for people to talk to Shoal."""

    @property
    def name(self) -> str:
        """The first half of the names of its sessions."""
        ...

    @property
    def limits(self) -> ChannelLimits: ...

    async def listen(self, sink: MessageSink, draining: asyncio.Event) -> None:
        """Take messages until `draining` is set; then finish what is under way, within a few
        seconds, and return.

        Raises SettingsError at once when it cannot start.
        """
        ...

    def send(self, session: str, entry: NumberedLine) -> None:
        """Show a new line of a chat's log to the people who read the chat through this process
        now."""
        ...

    def facts(self) -> dict[str, str]:
        """Return what operators see of the channel, such as its address and its open
        connections."""
        ...
