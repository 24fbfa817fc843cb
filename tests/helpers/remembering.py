"""Conversations on a real Valkey for tests of memory: turns committed as workers do, commands as gateways do."""

from __future__ import annotations

from collections.abc import Sequence

from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.session import Change, Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Committed, Turns
from tests.helpers.build import message, reply, say

CHAT = "owner/a"
SESSION = f"web:{CHAT}"
SCOPE = f"chat:{SESSION}"
NOON_MS = 1_782_043_200_000  # 2026-06-21 12:00 UTC


def plain_turn(n: int, text: str = "", answer: str = "") -> list[TranscriptEntry]:
    """A message and its answer, one minute after those before."""
    at = NOON_MS + n * 60_000
    return [
        UserEntry(content=text or f"question {n}", turn=n, at=at, sender_id="owner"),
        AssistantEntry(content=answer or f"answer {n}", turn=n, at=at),
    ]


def tool_turn(n: int, rounds: int = 1) -> list[TranscriptEntry]:
    """A message that took rounds of a tool call and its result, and its answer."""
    asked, answer = plain_turn(n)
    steps: list[TranscriptEntry] = []
    for at in range(rounds):
        id = f"c{n}-{at}"
        steps += [
            AssistantEntry(content=None, turn=n, tool_calls=(ToolCall(id, "calculate", "{}"),), at=asked.at),
            ToolEntry(call_id=id, name="calculate", content=f"result {id}", turn=n, at=asked.at),
        ]
    return [asked, *steps, answer]


async def talk(
    client: RedisClient, entries: Sequence[TranscriptEntry], *, chat: str = CHAT, idle_ms: int = 0
) -> Committed:
    """One turn of a chat, from its message to its commit."""
    limits = InboxLimits(idle_ms=idle_ms)
    await say(Inbox(client, limits), chat=chat)
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    assert claim.turn is not None
    n = claim.turn.n
    return await Turns(client, limits).commit(
        claim, history=entries, lines=[reply("answer", n)], event=TurnEvent(n, "done")
    )


async def fill(client: RedisClient, turns: int, *, chat: str = CHAT, first: int = 1) -> list[TranscriptEntry]:
    """A conversation of plain turns, written straight into history; its entries."""
    entries = [entry for n in range(first, first + turns) for entry in plain_turn(n)]
    await put(client, entries, chat=chat)
    return entries


async def put(client: RedisClient, entries: Sequence[TranscriptEntry], *, chat: str = CHAT) -> None:
    """Entries behind those of a history, without turns of their own."""
    session, records = f"web:{chat}", list(map(encode, entries))
    await client.command("RPUSH", keys.history(session), *records)
    await client.command("HINCRBY", keys.session(session), "history", sum(map(len, records)))


async def command(client: RedisClient, change: Change, *, chat: str = CHAT) -> None:
    """`/new` or `/forget`, as a gateway carries them out."""
    sessions = Sessions(client)
    state = await sessions.state(f"web:{chat}")
    sent = message(f"/{change}", chat=chat)
    await sessions.answer_command(sent, reply("done", 0), state, change=change)
