"""Chat commands: found in a text, answered at once and once, with what follows from the change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from gateway.commands.command import Command, CommandAnswer, CommandContext
from gateway.commands.conversation import not_counted
from gateway.ingress.approvals import HELD_S, TRIES, ApprovalDesk
from shared.backoff import Backoff
from shared.clock import Clock
from shared.errors import BadInput, RedisAway, Refused
from shared.ids import log_id
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import LogLine, OutboundMessage
from shared.metrics import COMMANDS
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs, SessionJobs, forget_media
from shared.store.sessions.session import ApprovalRejected, CommandAnswered, InboxChanged, Sessions
from shared.store.turns.approvals import ApprovalOutcome
from shared.store.turns.inbox import InboxLimits, scope_of

ANSWER_WITHIN_S: Final = 10.0
ANSWER_CHARS: Final = 16_000

ENDS_TURNS: Final = ("new", "forget")
"""Changes that end every turn of the session."""

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@\w+)?(?:\s+|$)")

log = logger("ingress")


class CommandRunner:
    """Runs the commands of a gateway."""

    def __init__(
        self,
        client: RedisClient,
        commands: Mapping[str, Command],
        limits: InboxLimits,
        desk: ApprovalDesk,
        clock: Clock,
    ) -> None:
        self._client = client
        self._commands = commands
        self._sessions = Sessions(client, limits)
        self._jobs = SessionJobs(Jobs(client))
        self._limits = limits
        self._desk = desk
        self._clock = clock

    def find(self, text: str) -> tuple[Command, str] | None:
        """Return the command that a text begins with, and its argument; None for any other text."""
        text = text.lstrip()
        if not text.startswith("/"):
            return None
        match = _COMMAND.match(text)
        command = self._commands.get(match[1].lower()) if match else None
        return None if match is None or command is None else (command, text[match.end() :].rstrip())

    async def run(
        self,
        message: InboundMessage,
        command: Command,
        argument: str,
        *,
        show: LogLine | None,
        principal: str | None,
        retry_for_s: float,
    ) -> CommandAnswered:
        """Answer a command, trying again for `retry_for_s` while Redis is unavailable: the store
        knows the message's id. Raises BadInput, TooBig, Refused, RedisAway."""
        give_up_at = self._clock.monotonic() + retry_for_s
        for wait_s in Backoff():
            try:
                answered = await self._answer(message, command, argument, show, principal)
                break
            except RedisAway:
                if self._clock.monotonic() + wait_s >= give_up_at:
                    raise
                await asyncio.sleep(wait_s)
        if not answered.duplicate:
            COMMANDS.labels(message.channel, command.name).inc()
            log.info("command answered", command=command.name, session=log_id(message.session))
        return answered

    async def _answer(
        self, message: InboundMessage, command: Command, argument: str, show: LogLine | None, principal: str | None
    ) -> CommandAnswered:
        session = message.session
        client = self._client
        scope = scope_of(self._limits.memory_scope, message) or f"chat:{session}"
        refused: ApprovalOutcome | None = None
        for _ in range(TRIES):
            state = await self._sessions.state(session, scope=scope)
            context = CommandContext(message=message, argument=argument, state=state, client=client)
            text = not_counted(refused) if refused else ""
            answer = CommandAnswer(text) if refused else await self._ask(command, context)
            question = state.open_question
            if (
                answer.change in ("yes", "always")
                and question
                and not await self._desk.was_shown(message.channel, question)
            ):
                refused = "too_long"
                answer = CommandAnswer(not_counted(refused))
            ends = answer.change in ENDS_TURNS
            line = OutboundMessage(
                content=answer.text,
                turn=state.counter if ends else 0,
                in_reply_to=(message.id, *filter(None, state.waiting)) if ends else (message.id,),
                kind="command",
                at=self._clock.now_ms(),
                traceparent=message.traceparent,
            )
            try:
                answered = await self._sessions.answer_command(
                    message,
                    line,
                    state,
                    change=answer.change,
                    preset=answer.preset,
                    schedule=answer.schedule,
                    busy=answer.busy,
                    child=answer.child,
                    earlier=answer.earlier,
                    again=answer.again,
                    log_line=show,
                    principal=principal,
                )
            except InboxChanged:
                continue  # the answer speaks of a state that is no more: build it again
            except ApprovalRejected as exc:
                if exc.why == "held":
                    await asyncio.sleep(HELD_S)
                else:
                    refused = exc.why
                continue
            lists = command.name == "always" and argument.partition(" ")[0].casefold() in ("", "off")
            decides = command.name in ("yes", "no", "always") and not lists
            if decides and not answered.duplicate:
                await self._desk.record_command(command.name, context, answer, refused)
            if answer.change in ("trust", "trust_all") and not answered.duplicate:
                await self._desk.record_trust(context)
            if answer.change == "standing" and not answered.duplicate:
                await self._desk.record_withdrawn(context, answer.preset)
            if answer.change == "folder" and not answered.duplicate:
                await self._desk.record_folder(context, answer.preset)
            # Also for a duplicate: the process that answered first may have died before it asked.
            await self._queue_jobs(answer.change, session)
            return answered
        raise Refused("busy", "this chat changes faster than I can follow; please try again in a moment", 1)

    async def _ask(self, command: Command, context: CommandContext) -> CommandAnswer:
        """Return the command's answer, or an apology when it breaks."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await command.answer(context)
        except (BadInput, Refused, RedisAway):
            raise
        except Exception:
            log.exception("command failed", command=command.name)
            return CommandAnswer(f"Sorry, `/{command.name}` did not work. Whoever runs this service can see why.")
        if len(answer.text) <= ANSWER_CHARS or answer.change == "retry":
            return answer
        return replace(answer, text=answer.text[:ANSWER_CHARS] + " …")

    async def _queue_jobs(self, change: str, session: str) -> None:
        """Queue the job that a change asks for. If that fails, the sweep does it later."""
        try:
            if change == "new":
                await self._jobs.archive(session)
            elif change == "forget":
                await forget_media(self._client, session)
        except (RedisAway, Refused) as exc:
            log.warning("job not queued", after=change, error=type(exc).__name__)
