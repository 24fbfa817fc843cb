"""Two gateways and two workers on one Redis, all of them processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.store.client.redis_client import RedisClient
from tests.crash.test_worker_death import HELD, LONG_LEASE_S, WORDS
from tests.gateway.harness import TOKENS, Client, Frame, answers, client, free_port
from tests.helpers.fleet import holder, warm, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

SESSION = "web:owner/a"


async def gateways(spawn: Spawn, many: int = 2) -> list[tuple[Process, str]]:
    """Gateways that accept connections, with their addresses."""
    found = []
    for _ in range(many):
        port = free_port()
        found.append((spawn("gateway", WEB__PORT=str(port), WEB__TOKENS__OWNER=TOKENS["owner"]), f"127.0.0.1:{port}"))
    await eventually(lambda: all(answers(address) for _, address in found), within_s=60)
    return found


@asynccontextmanager
async def resumed(address: str, chat: str, after: int) -> AsyncIterator[Client]:
    """A client that knows the lines up to `after`."""
    async with client(address) as made:
        await made.send("resume", chat=chat, after=after)
        await made.next("resumed", chat=chat)
        yield made


def replies_of(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == "reply"]


async def test_an_answer_reaches_the_client_whichever_worker_ran_it(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A client on gateway A is answered by worker 1 and, when that is gone, by worker 2."""
    [(_, a), _] = await gateways(spawn)
    first, _second = spawn("worker"), spawn("worker")
    await workers(client, 2)
    async with resumed(a, "a", 0) as person:
        await person.say("a", "one")
        reply = await person.next("reply", chat="a")
        assert reply["text"] == "echo: one"
        first.terminate()
        await asyncio.to_thread(first.wait)
        await person.say("a", "two")
        assert (await person.next("reply", chat="a"))["text"] == "echo: two"


async def test_a_client_of_a_killed_gateway_resumes_on_the_other_in_the_middle_of_an_answer(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Gateway A dies while it streams: on B the client gets the running text whole, and each line once."""
    model.script(Answer(text=WORDS, delta_s=0.1, held_after=10))
    [(doomed, a), (_, b)] = await gateways(spawn)
    spawn("worker")
    await workers(client, 1)
    async with resumed(a, "a", 0) as person:
        await person.say("a", "tell me")
        await person.next("delta", chat="a")
        doomed.kill_group()
        await person.closed()
        before = person.seqs("a")
    async with resumed(b, "a", max(before, default=0)) as person:
        model.release()  # a reader who comes later gets the text with the next words
        full = await person.next("delta", chat="a", full=True)
        assert full["text"].startswith("word0"), "somebody who comes in the middle gets the text from its beginning"
        reply = await person.next("reply", chat="a")
        assert reply["text"] == WORDS
        assert before + person.seqs("a") == [1, 2]


async def test_a_killed_worker_goes_unnoticed_in_the_same_message(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Frames of one turn number only, attempt 2 begins with a full text, one reply."""
    model.script(HELD)
    [(_, a)] = await gateways(spawn, 1)
    await warm(*[spawn("worker", WORKER__LEASE_S=str(LONG_LEASE_S)) for _ in range(2)])
    async with resumed(a, "a", 0) as person:
        await person.say("a", "tell me")
        for _ in range(2):
            await person.next("delta", chat="a")
        (await holder(client, SESSION)).kill()
        killed = time.monotonic()
        await person.next("turn", chat="a", state="started", attempt=2)
        assert time.monotonic() - killed < LONG_LEASE_S / 2, "nobody waited for the end of its lease"
        model.release()
        assert (await person.next("delta", chat="a", attempt=2))["full"]
        assert (await person.next("reply", chat="a"))["text"] == WORDS
        await person.next("turn", chat="a", state="done")
        assert {frame["turn"] for frame in person.seen if frame["type"] in ("delta", "turn", "reply")} == {1}
        assert len(replies_of(person.seen)) == 1


async def test_fifty_messages_at_once_over_two_gateways_are_answered_in_the_order_of_accepted(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """One at a time, in order, on any of two workers; the page's line numbers have no hole and no double."""
    places = await gateways(spawn)
    for _ in range(2):
        spawn("worker", MEMORY__CONSOLIDATE_AT="1000")  # the calls that are counted are those of turns
    await workers(client, 2)
    async with resumed(places[0][1], "a", 0) as left, resumed(places[1][1], "a", 0) as right:
        sides = [left, right]
        for i in range(50):
            await sides[i % 2].send("message", id=f"id{i}", chat="a", text=f"message {i}")
        for side in sides:
            await side.shown("a", 100, within_s=60)
    accepted = [frame for side in sides for frame in side.seen if frame["type"] == "accepted"]
    assert not [frame for side in sides for frame in side.seen if frame["type"] == "error"]
    by_turn = {answer["turn"]: answer["id"] for answer in accepted}
    assert sorted(by_turn) == list(range(1, 51))
    for side in sides:
        assert side.seqs("a") == list(range(1, 101))
        assert [reply["turn"] for reply in replies_of(side.seen)] == list(range(1, 51))
        for reply in replies_of(side.seen):
            assert reply["in_reply_to"] == [by_turn[reply["turn"]]]
    assert model.stats()["most_open"] == 1, "never two turns of one chat at once"
    assert model.stats()["requests"] == 50
