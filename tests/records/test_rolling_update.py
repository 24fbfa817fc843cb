"""A rolling update and a rollback with real processes of the previous version and of this one on one Valkey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually
from tests.records.previous import extract

__all__ = ["model", "model_server", "spawn"]

STEPS: Final = 2
"""Entries in the ledger of a turn whose one tool has answered: the call, the result."""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the previous version lies."""
    return extract(tmp_path_factory.mktemp("previous"))


async def answers(client: RedisClient, chat: str) -> list[OutboundMessage]:
    """Return the replies in a chat, in their order."""
    lines = await Outbox(client).read_after(f"web:owner/{chat}", after=0, limit=2000)
    return [one.line for one in lines if isinstance(one.line, OutboundMessage) and one.line.kind == "reply"]


async def answered_once(client: RedisClient, chat: str, ids: Sequence[str]) -> None:
    """Wait until each of these messages has its one reply, in their order."""

    async def complete() -> bool:
        return [id for line in await answers(client, chat) for id in line.in_reply_to] == list(ids)

    await eventually(complete, within_s=60, what=f"one reply to each message of {chat}")


async def asked(client: RedisClient, chat: str, *texts: str) -> list[str]:
    """Send messages to a chat and return their ids."""
    ids = [f"{chat}-{n}" for n in range(len(texts))]
    for id, text in zip(ids, texts, strict=True):
        await say(Inbox(client), text, chat=f"owner/{chat}", id=id)
    return ids


async def test_a_fleet_rolls_back_and_forward_in_the_middle_of_turns(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, previous: Path
) -> None:
    """A turn before its first step, one between two, one that has written to its chat, an answered chat, and messages
    waiting in each: stop this version, run the previous one, then this one again. Each is answered once, in order."""
    half_way = json.dumps({"text": "half way"})
    model.script(
        Answer(match="^begun", role="user", fault="hang"),
        Answer(match="^stepped", role="user", calls=[Call("calculate", '{"expression": "6*7"}')]),
        Answer(match="^stepped", role="tool", fault="hang"),
        Answer(match="^effect", role="user", calls=[Call("message", half_way)]),
        Answer(match="^effect", role="tool", fault="hang"),
    )
    this = spawn("worker", WORKER__DRAIN_S="6", MODEL__CLIENT="direct")
    await warm(this)
    ids = {"quiet": await asked(client, "quiet", "hello")}
    await answered_once(client, "quiet", ids["quiet"])
    for kind in ("begun", "stepped", "effect"):
        ids[kind] = await asked(client, kind, kind, f"second to {kind}", f"third to {kind}")

    async def each_hangs() -> bool:
        """Calls that are about to be answered are open, too."""
        written = [await client.command("XLEN", keys.ledger(f"web:owner/{kind}")) for kind in ("stepped", "effect")]
        return min(written) >= STEPS and model.stats()["open"] == 3

    await eventually(each_hangs, within_s=30, what="three turns that wait for the model")
    this.terminate()
    assert await asyncio.to_thread(this.wait, 30) == 0

    before = spawn("worker", root=previous, WORKER__DRAIN_S="6", MODEL__CLIENT="direct")
    for kind in ids:
        await answered_once(client, kind, ids[kind])
    before.terminate()
    assert await asyncio.to_thread(before.wait, 30) == 0

    spawn("worker", MODEL__CLIENT="direct")
    for kind in ids:
        await say(Inbox(client), f"after all, {kind}", chat=f"owner/{kind}", id=f"{kind}-last")
        ids[kind].append(f"{kind}-last")
    for kind in ids:
        await answered_once(client, kind, ids[kind])
    sent = [request.body["messages"] for request in model.requests()]
    [last] = [messages for messages in sent if "after all, begun" in str(messages[-1]["content"])]
    assert any("third to begun" in str(one["content"]) for one in last), "both versions keep one conversation"
    lines = await Outbox(client).read_after("web:owner/effect", after=0)
    assert [one.line.content for one in lines if isinstance(one.line, OutboundMessage)].count("half way") == 1
    assert await client.command("XLEN", keys.DEAD) == 0


async def test_two_versions_serve_the_same_chats_at_the_same_time(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, previous: Path
) -> None:
    """Workers of both versions, as in the middle of a rolling update: each message has one reply, in the order in
    which they were accepted, and both versions answer some."""
    chats, each = [f"c{n}" for n in range(6)], 12
    fleet = [
        spawn("worker", MODEL__CLIENT="direct", WORKER__TURNS="2"),
        spawn("worker", root=previous, MODEL__CLIENT="direct", WORKER__TURNS="2"),
    ]
    await warm(*fleet)
    ids = {chat: await asked(client, chat, *(f"{chat} {n}" for n in range(each))) for chat in chats}
    for chat in chats:
        await answered_once(client, chat, ids[chat])
    assert all("turn" in worker.log for worker in fleet), "both had their share"
    assert await client.command("XLEN", keys.DEAD) == 0
