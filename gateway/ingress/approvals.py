"""Answers of people to the question whether a tool may run, and the audit record of them."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.clock import Clock
from shared.ids import log_id, split_session
from shared.log import logger
from shared.messages.transcript import ApprovalEntry
from shared.metrics import APPROVALS
from shared.store.access.audit import Audit, actor_of
from shared.store.turns.approvals import ApprovalOutcome, Approvals

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

    async def approve(self, session: str, id: str, *, yes: bool, sender: str, digest: str = "") -> ApprovalOutcome:
        """Answer the question `id`, with `digest` only for those arguments. Raises RedisAway."""
        # Read first: the record names the tool, and a settled question cannot be read any more.
        question = await self._approvals.open_question(session, id)
        for _ in range(TRIES):
            settled = await self._approvals.resolve(
                session, id, yes=yes, sender=sender, digest=digest, now_ms=self._clock.now_ms()
            )
            if settled != "held":
                break
            await asyncio.sleep(HELD_S)
        await self._record(session, id, question, sender, "yes" if yes else "no", settled)
        return settled

    async def record_command(
        self, name: str, context: CommandContext, answer: CommandAnswer, refused: ApprovalOutcome | None
    ) -> None:
        """Record what came of a `/yes` or `/no`. `refused`: the store did not count it."""
        question, sender = context.state.open_question, context.message.sender_id
        settled: ApprovalOutcome = "unknown"
        if answer.change:
            settled = "done"
        elif refused is not None:
            settled = refused
        elif question is not None and question.people and sender not in question.people:
            settled = "not_allowed"
        id = question.id if question else context.argument
        await self._record(context.message.session, id, question, sender, name, settled)

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
