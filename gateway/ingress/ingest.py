"""The way in of a gateway: commands are answered at once, messages go to the inbox."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.commands.command import Command
from gateway.ingress.approvals import ApprovalDesk
from gateway.ingress.commands import CommandRunner
from gateway.process.traces import receive_span, record_accepted
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, TooBig
from shared.ids import is_ephemeral, is_stored, log_id
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine
from shared.messages.web import CommandRow
from shared.metrics import MESSAGES_REFUSED, MESSAGES_WITHDRAWN
from shared.store.access.audit import Audit, actor_of
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import READ_CHANNELS
from shared.store.responses.conversations import Conversations
from shared.store.turns.approvals import Approvals
from shared.store.turns.client_calls import ClientCalls
from shared.store.turns.inbox import BOT_LOOP, OVERLOADED, Accepted, Inbox, InboxLimits
from shared.store.turns.known_messages import WithdrawalOutcome, Withdrawals

log = logger("ingress")


class Ingress:
    """Takes the messages of every channel. `commands` are those it answers, by name."""

    def __init__(
        self,
        client: RedisClient,
        commands: Mapping[str, Command],
        limits: InboxLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._limits = limits = limits or InboxLimits()
        self._clock = clock
        self._inbox = Inbox(client, limits)
        self._withdrawals = Withdrawals(client, limits)
        self._audit = Audit(client)
        desk = ApprovalDesk(Approvals(client, limits), self._audit, clock)
        self._commands = CommandRunner(client, commands, limits, desk, clock)
        self.commands = [CommandRow(command.name, command.about) for command in commands.values()]
        """The commands that channels may offer."""

        self.stop = self._inbox.stop
        self.client_calls = ClientCalls(client, limits)
        self.conversations = Conversations(client, limits)
        self.approve = desk.approve
        self.limit_questions = desk.limit_questions

    async def ingest(
        self,
        message: InboundMessage,
        *,
        show: LogLine | None = None,
        principal: str | None = None,
        notice: bool = False,
        follows: int | None = None,
        background: str = "",
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Make a message durable, once. A command has its answer in the chat's log when this
        returns, and turn 0; a word that is not a command is a message like any other: people talk
        about paths.

        `show` is written into the chat's log with it: the person's text where people read the log,
        or a notice about it. With `notice` a refusal is written into the log too, once a minute,
        for channels that cannot show one at the message; except `overloaded`, for that message
        comes again. That a chat is paused for bots is always written. With `follows` the message is
        no command; see `Inbox.ingest`, also for `background`. The caller counts refusals
        (`MESSAGES_REFUSED`). Raises BadInput, TooBig, Refused, RedisAway.
        """
        with receive_span(message) as (message, traced):
            try:
                accepted = await self._dispatch(message, show, principal, follows, background, retry_for_s)
                return record_accepted(traced, accepted)
            except (Refused, TooBig) as refused:
                if (notice and refused.code != OVERLOADED) or refused.code == BOT_LOOP:
                    await self._notify(message, refused)
                raise

    async def _notify(self, message: InboundMessage, refused: Refused | TooBig) -> None:
        try:
            is_new = await self._inbox.notify_refusal(message, refused)
        except (RedisAway, Refused):
            return  # the refusal itself is raised, and the next one writes the notice
        if is_new:
            log.warning("messages refused", reason=refused.code, session=log_id(message.session))
            actor = actor_of(message.channel, message.sender_id)
            await self._audit.record("access", refused.code, actor=actor, session=message.session)

    async def _dispatch(
        self,
        message: InboundMessage,
        show: LogLine | None,
        principal: str | None,
        follows: int | None,
        background: str,
        retry_for_s: float,
    ) -> Accepted:
        # In a session without a name a slash is part of the material: there is no chat to change.
        unnamed = is_ephemeral(message.session) or is_stored(message.session)
        found = None if unnamed or follows is not None else self._commands.find(message.content)
        if found is None:
            accepted = await self._inbox.ingest(
                message,
                log_line=show,
                principal=principal,
                follows=follows,
                background=background,
                retry_for_s=retry_for_s,
            )
            if accepted.rejected:
                MESSAGES_REFUSED.labels(message.channel, "busy").inc()
                session = log_id(message.session)
                log.info("message not read", reason="busy", ahead=accepted.ahead, session=session)
            return accepted
        channel = message.channel
        limited = self._limits.of_sender(channel) or self._limits.bot_turns or self._limits.of_chats(channel)
        # A command passes the inbox by, so its sender's rate is counted here. On channels whose
        # lines are delivered this also opens a closed chat, or the answer could not get there.
        if limited or channel not in READ_CHANNELS:
            await self._inbox.admit(message, principal=principal, retry_for_s=retry_for_s)
        command, argument = found
        answered = await self._commands.run(
            message, command, argument, show=show, principal=principal, retry_for_s=retry_for_s
        )
        return Accepted(turn=0, ahead=0, seq=answered.seq, duplicate=answered.duplicate)

    async def withdraw(self, channel: str, chat_id: str, id: str, *, thread: str | None = None) -> WithdrawalOutcome:
        """Withdraw a message, unless a turn has begun with it, and count it. Raises RedisAway."""
        now_ms = self._clock.now_ms()
        done = await self._withdrawals.withdraw(channel, chat_id, id, thread=thread, at_ms=now_ms)
        if done == "withdrawn":
            MESSAGES_WITHDRAWN.labels(channel).inc()
        return done
