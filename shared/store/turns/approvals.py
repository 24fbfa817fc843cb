"""Approvals: a turn asks whether a tool may run and waits without a slot; one answer counts."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from shared.crash_points import crash_point
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.outbound import Approval, OutboundMessage
from shared.messages.sources import join_sources
from shared.messages.transcript import ApprovalEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS, InboxLimits
from shared.tracing import current_traceparent

ApprovalOutcome = Literal[
    "done", "unknown", "used", "late", "over", "not_allowed", "changed", "held", "too_long", "not_standing"
]
"""Outcome of an answer. `held`: a worker holds the turn at this moment, and a retry may count.
`too_long`: a yes from where the question could not be shown whole. `not_standing`: a yes for good
where only this call can be approved."""

SHORT_CHARS: Final = 40
"""A line of that length is nowhere wrapped."""

LONG_LINES: Final = 12
LONG_CHARS: Final = 1_000
"""A question with more names its size: whoever reads it knows when the end is reached."""

REFUSALS: Final[dict[ApprovalOutcome, str]] = {
    "unknown": "there is no such question in this chat",
    "used": "this was answered already, and an answer counts once",
    "late": "the time for an answer is over, so it was not done",
    "over": "this is not asked any more: what it was for has ended",
    "not_allowed": "only who asked me for this can say yes or no to it",
    "changed": "something else is asked by now; please look at it again",
    "held": "this moves just now; please try again in a moment",
    "too_long": "it is too long to be shown here; ask me on the chat page or in `shoal chat`, or for smaller steps",
    "not_standing": "a yes to this counts for this one call only; please say `/yes` or `/no`",
}
"""Reasons, for people, why an answer does not count."""


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a question: by whom, `where` from (a device or channel), and whether a yes stands
    for later calls, too."""

    yes: bool
    sender: str
    name: str = ""
    where: str = ""
    always: bool = False


class Approvals:
    """Reads the questions of turns that wait, and records answers."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

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
        answered: ApprovalAnswer,
        *,
        now_ms: int,
        digest: str = "",
        retry_for_s: float = 0.0,
    ) -> ApprovalOutcome:
        """Answer question `id`, once; the turn goes on at once, on any worker. With `digest` the
        answer counts only for exactly those arguments. The line in the chat's log gets the time
        `now_ms`. Raises RedisAway."""
        # Read outside the script: it is needed only for the text of the line. The script checks it
        # again.
        question = await self.open_question(session, id)
        line = encode_resolution(question, answered, now_ms=now_ms)
        crash_point("before_approve")
        done = await self._client.run(
            "waits/approve",
            session=session,
            queue=TURNS,
            member=keys.turn(session),
            id=id,
            yes=int(answered.yes),
            request=nonce(),
            sender=answered.sender,
            digest=digest,
            line=line,
            keep_log_ms=self._limits.log_ms,
            always=int(answered.always),
            retry_for_s=retry_for_s,
        )
        crash_point("after_approve")
        return approval_outcome(done)


def approval_outcome(reply: bytes) -> ApprovalOutcome:
    """Return the outcome that resolve_approval (lib/approvals.lua) names."""
    outcome: ApprovalOutcome = msgspec.convert(reply.decode(), ApprovalOutcome)
    return outcome


def encode_resolution(question: ApprovalEntry | None, answered: ApprovalAnswer, *, now_ms: int) -> bytes:
    """Encode the line that shows the answer; empty where there is no such question: the script says
    so."""
    return b"" if question is None else encode(resolution_line(question, answered, now_ms=now_ms))


def parse_question(entries: list[tuple[bytes, list[bytes]]]) -> ApprovalEntry | None:
    """Return the question in the newest entry of a ledger; None when it is something else."""
    entry = decode_ledger.or_none(entries[0][1][1]) if entries else None
    return entry if isinstance(entry, ApprovalEntry) else None


def question_line(question: ApprovalEntry, *, wait_s: float) -> OutboundMessage:
    """Build the line that asks; park.lua adds its times. Every channel can send its buttons."""
    # A fence longer than any in the arguments, so that they cannot end it.
    runs = re.findall("`+", question.arguments)
    fence = "`" * max([3, *(1 + len(run) for run in runs)])
    tool = question.tool
    text = question.arguments
    card = number_lines(question.arguments)
    within = f"{wait_s / 60:.0f} min" if wait_s >= 120 else f"{wait_s:.0f} s"
    yes = f"/yes {question.id}"
    no = f"/no {question.id}"
    always = f"/always {question.id}" if question.standing else ""
    touches = touches_line(question.touches)
    lines = text.count("\n") + 1
    size = f" ({lines:,} lines, {len(text):,} characters)" if lines > LONG_LINES or len(text) > LONG_CHARS else ""
    # Labels are strangers' words: nothing in them may end the code that they stand in.
    sources = join_sources(question.sources).replace("`", "'")
    after = f"After reading `{sources}`: may" if sources else "May"
    return OutboundMessage(
        content=(
            f"{after} I run `{tool}` with exactly this{size}?\n\n{fence}\n{card}\n{fence}\n\n{touches}"
            f"Say `{yes}` or `{no}` within {within}; without an answer I do not."
            f"{f' `{always}` is a yes to {standing_words(question)} in this chat.' if always else ''}"
        ),
        turn=question.turn,
        kind="notice",
        buttons=(yes, no, *filter(None, [always])),
        approval=Approval(
            id=question.id,
            state="open",
            tool=tool,
            arguments=text,
            digest=question.digest,
            sources=question.sources,
            touches=question.touches,
            safe=question.safe,
            standing=bool(always),
        ),
        traceparent=current_traceparent(),
    )


def touches_line(touches: tuple[str, ...]) -> str:
    """Return what a call reaches as a paragraph; "" when nothing is known for sure."""
    if not touches:
        return ""
    parts = (one.partition(": ") for one in touches)
    # Paths and addresses may be strangers' words, as labels of sources are.
    known = "; ".join(f"{label} `{value.replace('`', chr(39))}`" for label, _, value in parts)
    return f"Touches: {known}.\n\n"


def standing_words(question: ApprovalEntry) -> str:
    """Return what a standing approval of a question covers, for people."""
    return "exactly this command" if question.standing.startswith("call ") else f"every `{question.tool}`"


def number_lines(card: str) -> str:
    """Put a number before each line: where a long one is wrapped, its rest has none, and cannot
    pass for a line of its own."""
    lines = card.split("\n")
    if len(lines) == 1 and len(card) <= SHORT_CHARS:
        return card
    return "\n".join(f"{number:>{len(str(len(lines)))}}│ {line}" for number, line in enumerate(lines, 1))


def unshown_line(line: OutboundMessage) -> OutboundMessage:
    """Build the line that takes the place of a question where it does not fit into one message: it
    can be refused there, and not be allowed."""
    assert line.approval is not None
    asked = line.approval
    no = f"/no {line.approval.id}"
    text = (
        f"I want to run `{asked.tool}`, but with {len(asked.arguments):,} characters the question "
        "is too long to be shown here, so a yes does not count here. The chat page and `shoal chat` show "
        f"questions of any length: ask me there. Or say `{no}`, and ask me for smaller steps."
    )
    return msgspec.structs.replace(line, content=text, buttons=(no,))


def resolution_line(question: ApprovalEntry, answered: ApprovalAnswer, *, now_ms: int) -> OutboundMessage:
    """Build the line that shows the answer."""
    tool = question.tool
    turn = question.turn
    always = answered.yes and answered.always
    content = f"Yes: `{tool}` runs." if answered.yes else f"No: `{tool}` does not run."
    if answered.name:
        who = answered.name.replace("`", "'")
        content += f" Said by `{who}`."
    if always:
        content += f" From now on so does {standing_words(question)} in this chat, until `/always off {question.id}`."
    approval = Approval(
        id=question.id,
        state="yes" if answered.yes else "no",
        tool=tool,
        standing=always,
        by=answered.sender,
        by_name=answered.name,
        where=answered.where,
    )
    return OutboundMessage(content=content, turn=turn, kind="notice", at=now_ms, approval=approval)
