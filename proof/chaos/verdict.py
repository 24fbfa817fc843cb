"""What came of it: counted from what people saw and from a last look at Redis. Every count of a wrong must be 0."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise, takewhile
from statistics import quantiles

import msgspec

from proof.chaos.people import Person
from proof.chaos.witness import Witness
from shared.messages.transcript import AssistantEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.helpers.fleet import history

ALLOWED_KINDS = {
    "session", "history", "transcript", "outbox", "seen", "chats", "presence", "wake", "idle", "memory", "memlog",
    "spent", "used", "limit", "brake", "cron", "served", "audit", "pages", "rework",
}  # fmt: skip


class Verdict(msgspec.Struct):
    """Wrongs first; then what it cost."""

    lost: int = 0
    doubled_turns: int = 0
    doubled_lines: int = 0
    reordered: int = 0
    wrong_answers: int = 0
    apologies: int = 0
    torn_histories: int = 0
    dead_letters: int = 0
    left_behind: int = 0
    stale_writes: int = 0
    overlapping_turns: int = 0
    accepted: int = 0
    refused: int = 0
    stale_writes_refused: int = 0
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    wait_max_s: float = 0.0

    @property
    def wrongs(self) -> dict[str, int]:
        """Every count that must be 0."""
        names = self.__struct_fields__[: self.__struct_fields__.index("accepted")]
        return {name: getattr(self, name) for name in names}


async def judge(people: Sequence[Person], client: RedisClient, witness: Witness, left: Sequence[str]) -> Verdict:
    """Look at everything after the fleet has become quiet; `left` is the debris."""
    verdict = Verdict()
    for person in people:
        judge_person(person, verdict)
        await _judge_history(person, client, verdict)
    waits = sorted(wait for person in people for wait in person.waits)
    if len(waits) > 1:
        cuts = quantiles(waits, n=100)
        verdict.wait_p50_s, verdict.wait_p99_s, verdict.wait_max_s = cuts[49], cuts[98], waits[-1]
    verdict.dead_letters = await client.command("XLEN", keys.DEAD)
    verdict.left_behind = len(left)
    verdict.stale_writes, verdict.overlapping_turns = witness.stale_accepted, witness.overlaps
    verdict.stale_writes_refused = witness.stale_refused
    return verdict


def judge_person(person: Person, verdict: Verdict) -> None:
    """What one of them saw, added to `verdict`."""
    verdict.accepted += len(person.accepted)
    verdict.refused += person.refused
    verdict.doubled_lines += person.doubled
    replies = [line for _, line in sorted(person.lines.items()) if line["type"] == "reply"]
    answered = [id for reply in replies for id in reply["in_reply_to"]]
    verdict.lost += len(person.accepted.keys() - set(answered))
    verdict.doubled_turns += len(answered) - len(set(answered))
    turns = [reply["turn"] for reply in replies]
    verdict.reordered += sum(later <= earlier for earlier, later in pairwise(turns))
    for reply in replies:
        if reply.get("kind", "reply") != "reply":
            verdict.apologies += 1
        elif any(person.expected(id) not in reply["text"] for id in reply["in_reply_to"]):
            verdict.wrong_answers += 1


async def _judge_history(person: Person, client: RedisClient, verdict: Verdict) -> None:
    verdict.torn_histories += torn(await history(client, f"web:owner/{person.name}"))


def torn(entries: Sequence[TranscriptEntry]) -> int:
    """How much is wrong with a history: turns stand one behind the other, each a question (or several different ones,
    which a turn answers together), steps, and one answer."""
    turns = [entry.turn for entry in entries]
    wrong = int(turns != sorted(turns))
    for turn in set(turns):
        own = [entry for entry in entries if entry.turn == turn]
        asked = list(takewhile(lambda entry: isinstance(entry, UserEntry), own))
        later = sum(isinstance(entry, UserEntry) for entry in own[len(asked) :])
        final = sum(isinstance(entry, AssistantEntry) and not entry.tool_calls for entry in own)
        wrong += not asked or later > 0 or len(set(asked)) < len(asked) or final != 1
    return wrong


async def debris(client: RedisClient, *, besides: Sequence[str] = (), within_s: float = 150.0) -> list[str]:
    """The keys that should be gone after quiet, `besides` some; what is still being put away gets `within_s`: a memory
    job rests for a minute after a crash."""
    give_up_at = time.monotonic() + within_s
    while True:
        names = [name.decode() for name in await client.command("KEYS", "*")]
        left = sorted([name for name in names if name not in besides and not await _may_stay(client, name)])
        if not left or time.monotonic() >= give_up_at:
            return left
        await asyncio.sleep(0.2)


async def _may_stay(client: RedisClient, name: str) -> bool:
    """What is listed, and what arq itself notes for a while: that it lives, and what became of a job."""
    room, kind = name.replace("{0ax}:", "", 1).split(":")[:2]
    if kind in ("child", "children"):
        return int(await client.command("PTTL", name)) > 0  # of one that ended, for an hour
    if room == "arq":
        # A worker that is stopped while it begins a job notes a try when another one has long done it.
        return kind in ("health-check", "result", "retry") and int(await client.command("PTTL", name)) > 0
    return kind in ALLOWED_KINDS or name in (keys.CLOCKS, keys.CONFIRMED, keys.META, keys.MODEL_WAITS)
