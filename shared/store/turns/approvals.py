"""Approvals: a turn asks whether a tool may run and waits without a slot; one answer counts."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from shared.crash_points import crash_point
from shared.errors import TurnStopped
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.outbound import Approval, OutboundMessage
from shared.messages.transcript import ApprovalEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.turns.inbox import TURNS, InboxLimits
from shared.store.turns.queue import Claim, ledger_full
from shared.tracing import current_traceparent

ApprovalOutcome = Literal["done", "unknown", "used", "late", "over", "not_allowed", "changed", "held"]
"""Outcome of an answer. `held`: a worker holds the turn at this moment, and a retry may count."""

REFUSALS: Final[dict[ApprovalOutcome, str]] = {
    "unknown": "there is no such question in this chat",
    "used": "this was answered already, and an answer counts once",
    "late": "the time for an answer is over, so it was not done",
    "over": "this is not asked any more: what it was for has ended",
    "not_allowed": "only who asked me for this can say yes or no to it",
    "changed": "something else is asked by now; please look at it again",
    "held": "this moves just now; please try again in a moment",
}
"""Reasons, for people, why an answer does not count."""


class Approvals:
    """Asks questions and records answers."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def park(
        self,
        claim: Claim,
        queue: str,
        step: int,
        question: ApprovalEntry,
        *,
        wait_s: float,
        cap_bytes: int,
        retry_for_s: float = 0.0,
    ) -> bool:
        """Ask in the turn's chat as step number `step` and give the lease up; if that step is this
        question already, go on waiting. An answer counts for `wait_s` from the first call on.
        Return True when the turn waits. False: the time is over, nobody answered, and the lease is
        kept. Raises TurnStopped when the turn was told to stop, TurnLimited when its ledger is
        full, LeaseLost, RedisAway."""
        assert claim.turn is not None
        line = encode(question_line(question, wait_s=wait_s))
        asked = encode(question), line, int(wait_s * 1000), claim.turn.n, question.id, question.tool
        done = await self._client.run(
            "turns/park",
            _keys(claim.session, queue),
            [*claim.fence, step, *asked, cap_bytes, self._limits.log_ms, self._limits.session_ms],
            retry_for_s=retry_for_s,
        )
        if done == -1:
            raise claim.lost()
        if done == -2:
            raise ledger_full("this turn", cap_bytes)
        if done == -3:
            raise TurnStopped
        return bool(done != 2)

    async def open_question(self, session: str, id: str = "") -> ApprovalEntry | None:
        """Read the question that the turn of a session waits for, or waited for until nobody
        answered; with `id` only that one. Raises RedisAway."""
        newest = await self._client.command("XREVRANGE", keys.ledger(session), "+", "-", "COUNT", 1)
        question = parse_question(newest)
        return question if question is not None and id in ("", question.id) else None

    async def resolve(
        self,
        session: str,
        id: str,
        *,
        yes: bool,
        sender: str,
        now_ms: int,
        digest: str = "",
        retry_for_s: float = 0.0,
    ) -> ApprovalOutcome:
        """Answer question `id` in the name of `sender`, once; the turn goes on at once, on any
        worker. With `digest` the answer counts only for exactly those arguments. The line in the
        chat's log gets the time `now_ms`. Raises RedisAway."""
        # Read outside the script: it is needed only for the text of the line. The script checks it
        # again.
        question = await self.open_question(session, id)
        answer = resolution_args(id, question, yes=yes, sender=sender, digest=digest, now_ms=now_ms)
        args = [keys.turn(session), *answer, self._limits.log_ms]
        names = _keys(session, TURNS)
        crash_point("before_approve")
        done = await self._client.run("turns/approve", names, args, retry_for_s=retry_for_s)
        crash_point("after_approve")
        return approval_outcome(done)


def approval_outcome(code: int) -> ApprovalOutcome:
    """Return the outcome for a code of resolve_approval (lib/core.lua): 1 and 0 are `done`."""
    outcomes: tuple[ApprovalOutcome, ...] = get_args(ApprovalOutcome)
    return outcomes[max(0, -code)]


def resolution_args(
    id: str, question: ApprovalEntry | None, *, yes: bool, sender: str, digest: str, now_ms: int
) -> list[Value]:
    """Arguments of resolve_approval (lib/core.lua): id, answer, request, sender, digest, line."""
    line = b""
    if question is not None:
        line = encode(resolution_line(question, yes=yes, sender=sender, now_ms=now_ms))
    return [id, int(yes), nonce(), sender, digest, line]


def parse_question(entries: list[tuple[bytes, list[bytes]]]) -> ApprovalEntry | None:
    """Return the question in the newest entry of a ledger; None when it is something else."""
    entry = decode_ledger.or_none(entries[0][1][1]) if entries else None
    return entry if isinstance(entry, ApprovalEntry) else None


def question_line(question: ApprovalEntry, *, wait_s: float) -> OutboundMessage:
    """Build the line that asks; park.lua adds its times. Every channel can send its buttons."""
    # A fence longer than any in the arguments, so that they cannot end it.
    runs = re.findall("`+", question.arguments)
    fence = "`" * max([3, *(1 + len(run) for run in runs)])
    tool, text = question.tool, question.arguments
    within = f"{wait_s / 60:.0f} min" if wait_s >= 120 else f"{wait_s:.0f} s"
    yes, no = f"/yes {question.id}", f"/no {question.id}"
    return OutboundMessage(
        content=(
            f"May I run `{tool}` with exactly this?\n\n{fence}json\n{text}\n{fence}\n\n"
            f"Say `{yes}` or `{no}` within {within}; without an answer I do not."
        ),
        turn=question.turn,
        kind="notice",
        buttons=(yes, no),
        approval=Approval(id=question.id, state="open", tool=tool, arguments=text, digest=question.digest),
        traceparent=current_traceparent(),
    )


def resolution_line(question: ApprovalEntry, *, yes: bool, sender: str, now_ms: int) -> OutboundMessage:
    """Build the line that shows the answer."""
    tool, turn = question.tool, question.turn
    content = f"Yes: `{tool}` runs." if yes else f"No: `{tool}` does not run."
    approval = Approval(id=question.id, state="yes" if yes else "no", tool=tool, by=sender)
    return OutboundMessage(content=content, turn=turn, kind="notice", at=now_ms, approval=approval)


def _keys(session: str, queue: str) -> list[str]:
    chat = [kind(session) for kind in (keys.session, keys.ledger, keys.outbox, keys.live)]
    return [keys.queue(queue), keys.leases(queue), keys.wake(queue), *chat]
