"""Approvals: a turn asks a person whether a tool may run and waits without a slot; exactly one
answer counts."""

from __future__ import annotations

from typing import Final, Literal

from shared.crash_points import crash_point
from shared.errors import BadRecord, LeaseLost, TurnLimited, TurnStopped
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.outbound import Approval, OutboundMessage
from shared.messages.transcript import ApprovalEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.turns.inbox import DAY_MS, TURNS, InboxLimits
from shared.store.turns.queue import Claim
from shared.tracing import current_traceparent

ApprovalOutcome = Literal["done", "unknown", "used", "late", "over", "not_allowed", "changed", "held"]
"""Outcome of an answer. `held`: a worker holds the turn at this moment, and a retry may count."""

APPROVAL_OUTCOMES: Final[dict[int, ApprovalOutcome]] = {
    1: "done",
    0: "done",
    -1: "unknown",
    -2: "used",
    -3: "late",
    -4: "over",
    -5: "not_allowed",
    -6: "changed",
    -7: "held",
}

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

        Return True when the turn waits. False: the time is over, nobody answered, and the lease
        is kept. Raises TurnStopped when the turn was told to stop, TurnLimited when its ledger
        is full, LeaseLost, RedisAway.
        """
        assert claim.turn is not None
        session, limits = claim.session, self._limits
        done = await self._client.run(
            "turns/park",
            _keys(session, queue),
            [
                claim.member, claim.lease_id, step, encode(question), encode(question_line(question, wait_s=wait_s)),
                int(wait_s * 1000), claim.turn.n, question.id, question.tool, cap_bytes, limits.log_days * DAY_MS,
                limits.session_days * DAY_MS,
            ],
            retry_for_s=retry_for_s,
        )  # fmt: skip
        if done == -1:
            raise LeaseLost(f"the lease on {claim.member!r} is lost")
        if done == -2:
            raise TurnLimited("ledger", f"this turn wrote more than {cap_bytes // 1024 // 1024} MB of results")
        if done == -3:
            raise TurnStopped
        return bool(done != 2)

    async def open_question(self, session: str, id: str = "") -> ApprovalEntry | None:
        """Read the question that the turn of a session waits for, or waited for until nobody
        answered; with `id` only that one. Raises RedisAway."""
        last = await self._client.command("XREVRANGE", keys.ledger(session), "+", "-", "COUNT", 1)
        question = parse_question(last)
        return question if question is not None and id in ("", question.id) else None

    async def resolve(
        self, session: str, id: str, *, yes: bool, sender: str, now_ms: int, digest: str = "", retry_for_s: float = 0.0
    ) -> ApprovalOutcome:
        """Answer question `id` in the name of `sender`, once; the turn goes on at once, on any
        worker.

        With `digest` the answer counts only for exactly those arguments. The line in the chat's
        log gets the time `now_ms`. Raises RedisAway.
        """
        # Read outside the script: it is needed only for the text of the line. The script checks it
        # again.
        question = await self.open_question(session, id)
        args = resolution_args(id, question, yes=yes, sender=sender, digest=digest, now_ms=now_ms)
        crash_point("before_approve")
        done = await self._client.run(
            "turns/approve",
            _keys(session, TURNS),
            [keys.turn(session), *args, self._limits.log_days * DAY_MS],
            retry_for_s=retry_for_s,
        )
        crash_point("after_approve")
        return APPROVAL_OUTCOMES[done]


def resolution_args(
    id: str, question: ApprovalEntry | None, *, yes: bool, sender: str, digest: str, now_ms: int
) -> list[Value]:
    """Id, answer, request, sender, digest and line, as resolve_approval (lib/core.lua) takes
    them."""
    line = resolution_line(question, yes=yes, sender=sender, now_ms=now_ms) if question is not None else None
    return [id, int(yes), nonce(), sender, digest, encode(line) if line is not None else b""]


def parse_question(entries: list[tuple[bytes, list[bytes]]]) -> ApprovalEntry | None:
    """Return the question in the newest entry of a ledger; None when it is something else."""
    if not entries:
        return None
    try:
        entry = decode_ledger(entries[0][1][1])
    except BadRecord:
        return None
    return entry if isinstance(entry, ApprovalEntry) else None


def question_line(question: ApprovalEntry, *, wait_s: float) -> OutboundMessage:
    """Build the line that asks; park.lua adds its times. Its buttons are texts that every
    channel can send."""
    # A fence longer than any in the arguments, so that they cannot end it.
    fence = "`" * max(3, 1 + _longest_run("`", question.arguments))
    within = f"{wait_s / 60:.0f} min" if wait_s >= 120 else f"{wait_s:.0f} s"
    yes, no = f"/yes {question.id}", f"/no {question.id}"
    return OutboundMessage(
        content=(
            f"May I run `{question.tool}` with exactly this?\n\n{fence}json\n{question.arguments}\n{fence}\n\n"
            f"Say `{yes}` or `{no}` within {within}; without an answer I do not."
        ),
        turn=question.turn,
        kind="notice",
        buttons=(yes, no),
        approval=Approval(
            id=question.id,
            state="open",
            tool=question.tool,
            arguments=question.arguments,
            digest=question.digest,
        ),
        traceparent=current_traceparent(),
    )


def resolution_line(question: ApprovalEntry, *, yes: bool, sender: str, now_ms: int) -> OutboundMessage:
    """Build the line that shows the answer."""
    return OutboundMessage(
        content=f"{'Yes' if yes else 'No'}: `{question.tool}` {'runs' if yes else 'does not run'}.",
        turn=question.turn,
        kind="notice",
        at=now_ms,
        approval=Approval(id=question.id, state="yes" if yes else "no", tool=question.tool, by=sender),
    )


def _keys(session: str, queue: str) -> list[str]:
    return [
        keys.queue(queue), keys.leases(queue), keys.wake(queue), keys.session(session), keys.ledger(session),
        keys.outbox(session), keys.live(session),
    ]  # fmt: skip


def _longest_run(char: str, text: str) -> int:
    longest = run = 0
    for one in text:
        run = run + 1 if one == char else 0
        longest = max(longest, run)
    return longest
