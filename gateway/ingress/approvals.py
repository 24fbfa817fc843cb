"""Answers of people to the question whether a tool may run, and the audit record of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.clock import Clock
from shared.ids import log_id, split_session
from shared.log import logger
from shared.messages.outbound import OutboundMessage
from shared.messages.sources import merge_sources
from shared.messages.transcript import ApprovalEntry
from shared.metrics import APPROVALS
from shared.store.access.audit import Audit, actor_of
from shared.store.turns.approvals import ApprovalAnswer, ApprovalOutcome, Approvals, question_line

TRIES: Final = 10
HELD_S: Final = 0.1
"""Pause before the next try while a worker reads the question."""

DIGEST_CHARS: Final = 16
"""Characters of the hash of a call's arguments that the audit record keeps."""

log = logger("ingress")


class ApprovalDesk:
    """Settles questions, whether answered by a button or by `/yes` and `/no`."""

    def __init__(self, approvals: Approvals, audit: Audit, clock: Clock) -> None:
        self._approvals = approvals
        self._audit = audit
        self._clock = clock
        self._shows: dict[str, Callable[[OutboundMessage], bool]] = {}

    def limit_questions(self, channel: str, shows: Callable[[OutboundMessage], bool]) -> None:
        """Refuse every yes of a channel to a question that it did not show whole, as `shows`
        tells."""
        self._shows[channel] = shows

    async def was_shown(self, channel: str, question: ApprovalEntry) -> bool:
        """Return whether a channel shows a question whole."""
        shows = self._shows.get(channel)
        if shows is None:
            return True
        line = question_line(question, wait_s=(question.expires_at - question.at) / 1000)
        return await asyncio.to_thread(shows, line)

    async def approve(self, session: str, id: str, answered: ApprovalAnswer, *, digest: str = "") -> ApprovalOutcome:
        """Answer the question `id`, with `digest` only for those arguments. Raises RedisAway."""
        # Read first: the record names the tool, and a settled question cannot be read any more.
        question = await self._approvals.open_question(session, id)
        for _ in range(TRIES):
            settled = await self._approvals.resolve(session, id, answered, digest=digest, now_ms=self._clock.now_ms())
            if settled != "held":
                break
            await asyncio.sleep(HELD_S)
        reply = "always" if answered.always else "yes"
        await self._record(session, id, question, answered.sender, reply if answered.yes else "no", settled)
        return settled

    async def record_command(
        self, name: str, context: CommandContext, answer: CommandAnswer, refused: ApprovalOutcome | None
    ) -> None:
        """Record what came of a `/yes` or `/no`. `refused`: the store did not count it."""
        question = context.state.open_question
        sender = context.message.sender_id
        settled: ApprovalOutcome = "unknown"
        if answer.change:
            settled = "done"
        elif refused is not None:
            settled = refused
        elif question is not None and question.people and sender not in question.people:
            settled = "not_allowed"
        elif name == "always" and question is not None and question.id in context.argument and not question.standing:
            settled = "not_standing"
        id = question.id if question else context.argument
        await self._record(context.message.session, id, question, sender, name, settled)

    async def record_withdrawn(self, context: CommandContext, id: str) -> None:
        """Record that a standing approval counts no more; `id` may be `all`."""
        message = context.message
        log.info("standing approval taken back", session=log_id(message.session), by=log_id(message.sender_id))
        actor = actor_of(message.channel, message.sender_id)
        await self._audit.record("approval", "taken_back", actor=actor, session=message.session, about=id)

    async def record_trust(self, context: CommandContext) -> None:
        """Record that a person trusts what their chat has read."""
        state = context.state
        message = context.message
        many = len(merge_sources(state.sources, state.file_sources, state.memory_sources, state.folder_sources))
        log.info("sources trusted", session=log_id(message.session), by=log_id(message.sender_id), sources=many)
        actor = actor_of(message.channel, message.sender_id)
        about = f"{many} sources"
        await self._audit.record("approval", "trusted", actor=actor, session=message.session, about=about)

    async def record_folder(self, context: CommandContext, folder: str) -> None:
        """Record that a chat was given a folder to work on, or that it works on none any more."""
        message = context.message
        outcome = "given" if folder else "ended"
        actor = actor_of(message.channel, message.sender_id)
        await self._audit.record("folder", outcome, actor=actor, session=message.session, about=folder)

    async def _record(
        self, session: str, id: str, question: ApprovalEntry | None, sender: str, reply: str, settled: ApprovalOutcome
    ) -> None:
        """Log and audit one reply: hashes only, never a text."""
        done = settled == "done"
        APPROVALS.labels(reply if done else "refused").inc()
        log.info(
            "approval answered" if done else "approval refused",
            session=log_id(session),
            question=id[:64],
            reply=reply,
            by=log_id(sender),
            outcome=settled,
        )
        await self._audit.record(
            "approval",
            reply if done else settled,
            actor=actor_of(split_session(session)[0], sender),
            session=session,
            turn=question.turn if question else 0,
            about=f"{question.tool} {question.digest[:DIGEST_CHARS]}" if question else id,
        )
