"""Back to the release before with a fleet's real data, forward again, and both at once: real processes of this release,
the scripts and Structs of release 1, one Valkey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from shared.messages.outbound import OutboundMessage, SaidLine
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.helpers.build import message, say
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually
from tests.records.old_worker import OldWorker
from tests.records.release_1 import store as release_1

__all__ = ["model", "model_server", "spawn"]

STEPS: Final = 2
"""In the ledger of a turn whose one tool has answered: the wish, the result."""


async def answers(client: RedisClient, chat: str) -> list[OutboundMessage]:
    """The replies in a chat, in their order."""
    lines = await Outbox(client).read(f"web:owner/{chat}", after=0, limit=2000)
    return [one.line for one in lines if isinstance(one.line, OutboundMessage) and one.line.kind == "reply"]


async def answered_once(client: RedisClient, chat: str, ids: Sequence[str]) -> None:
    """Wait until each of these has its one reply, in their order."""

    async def so() -> bool:
        return [id for line in await answers(client, chat) for id in line.in_reply_to] == list(ids)

    await eventually(so, within_s=60, what=f"one reply to each message of {chat}")


async def asked(client: RedisClient, chat: str, *texts: str) -> list[str]:
    """Said through the gateway of this release; the ids."""
    ids = [f"{chat}-{n}" for n in range(len(texts))]
    for id, text in zip(ids, texts, strict=True):
        await say(Inbox(client), text, chat=f"owner/{chat}", id=id)
    return ids


async def test_release_1_goes_on_with_what_a_stopped_fleet_left_and_this_one_after_it(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A turn before its first step, one between two, one with a step that release 1 does not know, an answered chat,
    and messages behind each of them: stop, roll back, go forward. Everything is answered once and in order."""
    tell = json.dumps({"text": "half way"})
    model.script(
        Answer(match="^begun", role="user", fault="hang"),
        Answer(match="^stepped", role="user", calls=[Call("calculate", '{"expression": "6*7"}')]),
        Answer(match="^stepped", role="tool", fault="hang"),
        Answer(match="^effect", role="user", calls=[Call("message", tell)]),
        Answer(match="^effect", role="tool", fault="hang"),
    )
    this = spawn("worker", WORKER__DRAIN_S="6", MODEL__CLIENT="direct")
    await warm(this)
    ids = {"quiet": await asked(client, "quiet", "hello")}
    await answered_once(client, "quiet", ids["quiet"])
    for kind in ("begun", "stepped", "effect"):
        ids[kind] = await asked(client, kind, kind, f"second to {kind}", f"third to {kind}")
    await eventually(lambda: model.stats()["open"] == 3, within_s=30, what="three turns that wait for the model")
    assert await client.command("XLEN", keys.ledger("web:owner/stepped")) == STEPS
    this.terminate()
    assert await asyncio.to_thread(this.wait, 30) == 0
    calls = model.stats()["requests"]

    old = OldWorker(client)
    running = asyncio.create_task(old.run())
    again = await release_1.ingest(
        client, message("begun", chat="owner/begun", id="begun-0"), SaidLine(id="begun-0", text="begun")
    )
    assert again[:2] == [0, 1], "the gateway of release 1 knows what this one took"
    await release_1.ingest(
        client, message("more", chat="owner/quiet", id="quiet-1"), SaidLine(id="quiet-1", text="more")
    )
    ids["quiet"].append("quiet-1")
    for kind in ("quiet", "begun", "stepped"):
        await answered_once(client, kind, ids[kind])
    await eventually(lambda: old.left == {"web:owner/effect"}, within_s=10)
    await cancel_all([running])
    assert old.resumed == {"web:owner/stepped": STEPS}
    assert model.stats()["requests"] == calls

    spawn("worker", MODEL__CLIENT="direct")
    for kind in ("quiet", "begun", "stepped"):
        await say(Inbox(client), f"after all, {kind}", chat=f"owner/{kind}", id=f"{kind}-last")
        ids[kind].append(f"{kind}-last")
    for kind in ids:
        await answered_once(client, kind, ids[kind])
    told = [request.body["messages"] for request in model.requests()]
    [seen] = [one for one in told if "after all, begun" in str(one[-1]["content"])]
    before = [str(one["content"]) for one in seen]
    assert any("third to begun" in text for text in before), "what release 1 kept is in the conversation"
    lines = await Outbox(client).read("web:owner/effect", after=0)
    assert [one.line.content for one in lines if isinstance(one.line, OutboundMessage)].count("half way") == 1
    assert await client.command("XLEN", keys.DEAD) == 0


async def test_two_releases_serve_the_same_chats_at_the_same_time(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Workers and gateways of both, as in the middle of a deploy: each message has one reply, in the order of
    `accepted`; both releases had their share."""
    chats, each = [f"c{n}" for n in range(6)], 12
    this = spawn("worker", MODEL__CLIENT="direct", WORKER__TURNS="2")
    await warm(this)
    old = OldWorker(client)
    running = asyncio.create_task(old.run())

    async def talk(chat: str) -> None:
        for n in range(each):
            said = message(f"{chat} {n}", chat=f"owner/{chat}", id=f"{chat}-{n}")
            show = SaidLine(id=said.id, text=said.content)
            if (n + int(chat[1:])) % 2:
                status, turn, _, _ = await release_1.ingest(client, said, show)
                assert (status, turn) == (1, n + 1)
            else:
                assert (await Inbox(client).ingest(said, show=show, principal="owner")).turn == n + 1
            await asyncio.sleep(0)

    try:
        await asyncio.gather(*(talk(chat) for chat in chats))
        for chat in chats:
            await answered_once(client, chat, [f"{chat}-{n}" for n in range(each)])
    finally:
        await cancel_all([running])
    for chat in chats:
        found = await answers(client, chat)
        assert [line.turn for line in found] == list(range(1, each + 1))
    by_old = {(session, n) for session, n in old.answered}
    assert 0 < len(by_old) == len(old.answered) < len(chats) * each
    assert this.alive
