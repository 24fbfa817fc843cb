"""The way in of a gateway: a chat command is answered at once, everything else goes to the inbox of
its session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.commands.approve import not_counted
from gateway.commands.command import Command, CommandAnswer, CommandContext
from gateway.process.traces import received, receiving
from shared.backoff import full_jitter
from shared.clock import SYSTEM_CLOCK, Clock
from shared.ephemeral import is_throw_away
from shared.errors import BadInput, RedisAway, Refused, TooBig
from shared.ids import log_id, split_session
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.transcript import ApprovalEntry
from shared.messages.web import CommandRow
from shared.metrics import APPROVALS, COMMANDS, MESSAGES_REFUSED, MESSAGES_WITHDRAWN
from shared.store.access.audit import Audit, actor_of
from shared.store.client.redis_client import RECONNECT_CAP_S, RECONNECT_FIRST_S, RedisClient
from shared.store.delivery.deliveries import READ_CHANNELS
from shared.store.jobs.jobs import Jobs
from shared.store.jobs.media_jobs import forget_media
from shared.store.jobs.memory_jobs import MemoryJobs
from shared.store.sessions.session import Answered, InboxMoved, NotSettled, Sessions
from shared.store.turns.approvals import Approvals, Settled
from shared.store.turns.inbox import BOT_LOOP, OVERLOADED, Accepted, Inbox, InboxLimits, scope_of
from shared.store.turns.withdrawals import Withdrawal, Withdrawals

TRIES: Final = 10
HELD_S: Final = 0.1
"""How long until a question that a worker looks at is there for answers again."""

ANSWER_WITHIN_S: Final = 10.0
ANSWER_CHARS: Final = 16_000
ARGUMENTS_CHARS: Final = 16
"""Of the hash of a call's arguments in the audit record."""

ENDS_TURNS: Final = ("new", "forget")
"""Changes that end every turn there is."""

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@\w+)?(?:\s+|$)")

log = logger("ingress")


class Ingress:
    """The MessageSink of every channel of a gateway. `commands` are those that it answers, by their
    words."""

    def __init__(
        self,
        client: RedisClient,
        commands: Mapping[str, Command],
        limits: InboxLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._commands = commands
        self._limits = limits or InboxLimits()
        self._inbox = Inbox(client, self._limits)
        self._sessions = Sessions(client, self._limits)
        self._withdrawals = Withdrawals(client, self._limits)
        self._approvals = Approvals(client, self._limits)
        self._jobs = MemoryJobs(Jobs(client))
        self._audit = Audit(client)
        self._clock = clock

    @property
    def commands(self) -> Sequence[CommandRow]:
        """What channels may offer."""
        return [CommandRow(command.name, command.about) for command in self._commands.values()]

    async def ingest(
        self,
        message: InboundMessage,
        *,
        show: LogLine | None = None,
        principal: str | None = None,
        notice: bool = False,
        retry_for_s: float = 0.0,
    ) -> Accepted:
        """Take a message, once. A command has its answer in the chat's log when this returns, and
        turn 0.

        A word that is no command's is a message like any other: people talk about paths. With
        `notice` a refusal is told in the chat's log too, once a minute; that a chat is paused for
        bots always is. Raises BadInput, TooBig, Refused, RedisAway.
        """
        with receiving(message) as (message, traced):
            try:
                return received(traced, await self._take(message, show, principal, retry_for_s))
            except (Refused, TooBig) as refused:
                if (notice and refused.code != OVERLOADED) or refused.code == BOT_LOOP:
                    await self._tell(message, refused)
                raise

    async def _tell(self, message: InboundMessage, refused: Refused | TooBig) -> None:
        try:
            told = await self._inbox.slow_down(message, refused)
        except (RedisAway, Refused):
            return  # the refusal itself goes up, and the next one is told
        if told:
            log.warning("messages refused", reason=refused.code, session=log_id(message.session))
            actor = actor_of(message.channel, message.sender_id)
            await self._audit.note("access", refused.code, actor=actor, session=message.session)

    async def _take(
        self, message: InboundMessage, show: LogLine | None, principal: str | None, retry_for_s: float
    ) -> Accepted:
        # What is asked in one request alone is material, whatever it begins with: no chat is there
        # to be changed.
        found = None if is_throw_away(message.session) else self._command_in(message.content)
        if found is None:
            accepted = await self._inbox.ingest(message, show=show, principal=principal, retry_for_s=retry_for_s)
            if accepted.rejected:
                MESSAGES_REFUSED.labels(message.channel, "busy").inc()
                log.info("message not read", reason="busy", ahead=accepted.ahead, session=log_id(message.session))
            return accepted
        limited = self._limits.of_sender(message.channel) or self._limits.bot_turns
        if limited or message.channel not in READ_CHANNELS:  # where lines are delivered, this also opens a closed chat
            await self._inbox.admit(message, retry_for_s=retry_for_s)
        command, argument = found
        answered = await self._patiently(message, command, argument, show, principal, retry_for_s)
        if not answered.duplicate:
            COMMANDS.labels(message.channel, command.name).inc()
            log.info("command answered", command=command.name, session=log_id(message.session))
        return Accepted(turn=0, ahead=0, seq=answered.seq, duplicate=answered.duplicate)

    async def stop(self, session: str, turn: int | None = None) -> int | None:
        """See `Inbox.stop`."""
        return await self._inbox.stop(session, turn)

    async def withdraw(self, channel: str, chat_id: str, id: str, *, thread: str | None = None) -> Withdrawal:
        """See `Withdrawals.withdraw`."""
        done = await self._withdrawals.withdraw(channel, chat_id, id, thread=thread, at_ms=self._clock.now_ms())
        if done == "withdrawn":
            MESSAGES_WITHDRAWN.labels(channel).inc()
        return done

    async def approve(self, session: str, id: str, *, yes: bool, sender: str, digest: str = "") -> Settled:
        """Answer the question `id` in the name of `sender`; with `digest` only for exactly those
        arguments. Raises RedisAway."""
        question = await self._approvals.open(session, id)
        for _ in range(TRIES):
            settled = await self._approvals.answer(
                session, id, yes=yes, sender=sender, digest=digest, now_ms=self._clock.now_ms()
            )
            if settled != "held":
                break
            await asyncio.sleep(HELD_S)
        await self._note_approval(session, id, question, sender, "yes" if yes else "no", settled)
        return settled

    async def _note_approval(
        self, session: str, id: str, question: ApprovalEntry | None, sender: str, said: str, settled: Settled
    ) -> None:
        """The record of who answered what: hashes, and no text."""
        APPROVALS.labels(said if settled == "done" else "refused").inc()
        log.info(
            "approval answered" if settled == "done" else "approval refused",
            session=log_id(session),
            question=id[:64],
            said=said,
            by=log_id(sender),
            outcome=settled,
        )
        await self._audit.note(
            "approval",
            said if settled == "done" else settled,
            actor=actor_of(split_session(session)[0], sender),
            session=session,
            turn=question.turn if question else 0,
            about=f"{question.tool} {question.digest[:ARGUMENTS_CHARS]}" if question else id,
        )

    def _command_in(self, text: str) -> tuple[Command, str] | None:
        text = text.lstrip()
        if not text.startswith("/"):
            return None
        match = _COMMAND.match(text)
        command = self._commands.get(match[1].lower()) if match else None
        return None if match is None or command is None else (command, text[match.end() :].rstrip())

    async def _patiently(
        self,
        message: InboundMessage,
        command: Command,
        argument: str,
        show: LogLine | None,
        principal: str | None,
        retry_for_s: float,
    ) -> Answered:
        """Also while Redis is away for a moment: whatever of this happened before is not done
        again."""
        give_up_at = self._clock.monotonic() + retry_for_s
        for wait_s in full_jitter(RECONNECT_FIRST_S, RECONNECT_CAP_S):
            try:
                return await self._answer(message, command, argument, show, principal)
            except RedisAway:
                if self._clock.monotonic() + wait_s >= give_up_at:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("full_jitter never ends")

    async def _answer(
        self, message: InboundMessage, command: Command, argument: str, show: LogLine | None, principal: str | None
    ) -> Answered:
        session = message.session
        scope = scope_of(self._limits.memory_scope, message) or f"chat:{session}"
        refused: Settled | None = None
        for _ in range(TRIES):
            state = await self._sessions.state(session, scope=scope)
            context = CommandContext(message=message, argument=argument, state=state, client=self._client)
            said = CommandAnswer(not_counted(refused)) if refused else await self._say(command, context)
            ends = said.change in ENDS_TURNS
            line = OutboundMessage(
                content=said.text,
                turn=state.counter if ends else 0,
                in_reply_to=(message.id, *filter(None, state.waiting)) if ends else (message.id,),
                kind="command",
                at=self._clock.now_ms(),
                traceparent=message.traceparent,
            )
            try:
                answered = await self._sessions.answer(
                    message,
                    line,
                    state,
                    change=said.change,
                    preset=said.preset,
                    schedule=said.schedule,
                    busy=said.busy,
                    child=said.child,
                    show=show,
                    principal=principal,
                )
            except InboxMoved:
                continue
            except NotSettled as exc:
                if exc.why == "held":
                    await asyncio.sleep(HELD_S)
                else:
                    refused = exc.why
                continue
            if command.name in ("yes", "no") and not answered.duplicate:
                asks, sender = state.asks, message.sender_id
                why: Settled = "not_allowed" if asks and asks.people and sender not in asks.people else "unknown"
                settled: Settled = "done" if said.change else (refused or why)
                await self._note_approval(session, asks.id if asks else argument, asks, sender, command.name, settled)
            if said.change == "new":
                await self._archive(session)
            elif said.change == "forget":
                await self._forget_media(session)
            return answered
        raise Refused("busy", "this chat changes faster than I can follow; please try again in a moment", 1)

    async def _say(self, command: Command, context: CommandContext) -> CommandAnswer:
        """The command's answer; an apology for one that broke."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                said = await command.answer(context)
        except (BadInput, Refused, RedisAway):
            raise
        except Exception:
            log.exception("command failed", command=command.name)
            return CommandAnswer(f"Sorry, `/{command.name}` did not work. Whoever runs this service can see why.")
        if len(said.text) <= ANSWER_CHARS:
            return said
        return msgspec.structs.replace(said, text=said.text[:ANSWER_CHARS] + " …")

    async def _forget_media(self, session: str) -> None:
        """Ask for the end of the files that were sent here. If that fails, they go when they are
        old."""
        try:
            await forget_media(self._client, session)
        except (RedisAway, Refused) as exc:
            log.warning("files not forgotten", error=type(exc).__name__)

    async def _archive(self, session: str) -> None:
        """Ask for the ended conversation to be put into memory. If that fails, the sweep finds
        it."""
        try:
            await self._jobs.archive(session)
        except (RedisAway, Refused) as exc:
            log.warning("archive not queued", error=type(exc).__name__)
