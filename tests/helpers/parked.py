"""A turn that waits for a yes, as a worker leaves it, and what was answered."""

from __future__ import annotations

import secrets
from typing import Final

from shared.messages.transcript import ApprovalEntry, AssistantEntry, DecisionEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.approvals import question_line
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, Turns

QUESTION: Final = ApprovalEntry(
    id="0123456789", call_id="c1", turn=1, tool="exec", digest="d" * 64, arguments='{"command": "<b>ls</b>"}',
    people=("owner",),
)  # fmt: skip


async def ask(
    turns: Turns,
    claim: Claim,
    step: int,
    question: ApprovalEntry,
    *,
    wait_s: float = 600,
    cap_bytes: int = LEDGER_CAP_BYTES,
) -> bool:
    """Ask as a step of a turn; whether it waits."""
    line = question_line(question, wait_s=wait_s)
    return await turns.park(claim, TURNS, step, question, line, wait_s=wait_s, cap_bytes=cap_bytes)


async def park(client: RedisClient, question: ApprovalEntry = QUESTION, *, wait_s: float = 600) -> None:
    """What a worker does with the turn that is due when a tool needs a yes."""
    [claim] = await LeaseQueue(client, "turns", owner=secrets.token_hex(16), lease_s=30).acquire(1)
    turns = Turns(client)
    await turns.append_step(claim, 1, AssistantEntry(content=None, turn=1))
    assert await ask(turns, claim, 2, question, wait_s=wait_s)


async def decisions(client: RedisClient, session: str) -> list[DecisionEntry]:
    """What was answered in a session."""
    entries = await client.command("XRANGE", keys.ledger(session), "-", "+")
    found = [decode_ledger(fields[1]) for _, fields in entries]
    return [entry for entry in found if isinstance(entry, DecisionEntry)]
