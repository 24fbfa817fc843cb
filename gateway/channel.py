"""What every chat channel is to the rest of a gateway."""

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
    """What a channel can carry. `text_bytes` is the longest message a person may send."""

    text_bytes: int


class MessageSink(Protocol):
    """The way in, as a channel sees it: `gateway.ingress.ingest.Ingress`."""

    @property
    def commands(self) -> Sequence[CommandRow]:
        """The chat commands that are answered here, for channels that can offer them."""
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
        """Make a message durable, once; turn 0 in the answer means that it was a command, and is
        answered already.

        `show` is written into the chat's log with it: what the person said, where people read the
        log, or a word of ours about it. With `notice` a refusal is told in the log too, once a
        minute: for channels that cannot show one beside the message; but not that all have too much
        to do (`overloaded`): that is told again. Who caught the refusal counts it
        (`MESSAGES_REFUSED`). Raises BadInput, Refused, RedisAway.
        """
        ...

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """End the turn at the head of `session`; its number, None when there is none. Raises
        RedisAway."""
        ...

    async def approve(self, session: str, id: str, *, yes: bool, sender: str, digest: str = "") -> ApprovalOutcome:
        """Answer the question whether a tool may run, in the name of `sender`. Raises RedisAway."""
        ...

    async def withdraw(self, channel: str, chat_id: str, id: str, *, thread: str | None = None) -> WithdrawalOutcome:
        """Take a message back, if no turn has begun with it. Raises RedisAway."""
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
        """Show a new line of a chat's log to whoever reads the chat through this process at this
        moment."""
        ...

    def facts(self) -> dict[str, str]:
        """What operators see of it, such as its address and how many connections are open."""
        ...
