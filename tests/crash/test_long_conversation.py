"""Long conversations on real workers: what leaves their sight is in memory, also when a worker dies on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from shared.messages.transcript import AssistantEntry, ToolEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.sessions.memory import MemoryStore
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
SCOPE = f"chat:{SESSION}"
MESSAGES = 200
CONSOLIDATE_AT = 100
KEEP = 50
WINDOW = 100
OVERSHOOT = 40
"""Entries that turns may add while the job that a commit asked for waits, thinks and writes."""

Message = dict[str, Any]


def save(entry: str, memory: str = "", *, match: str = "<conversation>", times: int = 0, first_s: float = 0) -> Answer:
    """What the memory model answers to a conversation in which `match` is found."""
    arguments = {"history_entry": entry} | ({"memory_update": memory} if memory else {})
    return Answer(match=match, times=times, calls=[Call("save_memory", json.dumps(arguments))], first_s=first_s)


async def answered(client: RedisClient, turn: int) -> None:
    """Wait until a turn is committed."""

    async def done() -> bool:
        return int(await client.command("HGET", keys.session(SESSION), "done") or 0) >= turn

    await eventually(done, within_s=60, every_s=0.005, what=f"the answer to message {turn}")


async def consolidator(client: RedisClient) -> psutil.Process:
    """The worker process that consolidates the session now."""
    lease = await client.command("HGET", keys.leases("jobs"), f"consolidate:{SESSION}")
    owner = (lease or b"").decode().partition(":")[0]
    [pid] = [found.pid for found in await list_processes(client) if owner and owner.startswith(found.name)] or [0]
    assert pid
    return psutil.Process(pid)


def check_pairs(messages: Sequence[Message]) -> None:
    """Every tool call is followed by its result, no result is without a call, and a person's message comes first."""
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    wanted: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert wanted, "a result without its call"
            assert message["tool_call_id"] == wanted.pop(0)
        else:
            assert not wanted, "a call without its result"
            wanted = [call["id"] for call in message.get("tool_calls") or ()]
    assert not wanted


def chats(model: ScriptedOpenAI) -> list[list[Message]]:
    """The messages of every call that was about answering a person."""
    return [
        request.body["messages"]
        for request in model.requests()
        if "<conversation>" not in str(request.body["messages"][-1]["content"])
    ]


@pytest.mark.slow
async def test_two_hundred_messages_and_what_was_written_first_is_still_known(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """History stays near its size all the time, calls stay with their results, and early facts come back in the
    system text."""
    model.script(
        save("They agreed on a word.", "# Notes\n- The secret word is xylophone.", match="<conversation>.*xylophone"),
        save("They went on."),
        Answer(match=r"^sum", role="tool", times=0, text="It is four."),
        Answer(match=r"^sum", role="user", times=0, calls=[Call("calculate", '{"expression": "2+2"}')]),
    )
    worker = spawn("worker", MODEL__CLIENT="direct")
    await warm(worker)
    inbox, most = Inbox(client), 0
    for n in range(1, MESSAGES + 1):
        text = "The secret word is xylophone." if n == 3 else f"sum {n}" if n % 4 == 0 else f"message {n}"
        await say(inbox, text)
        await answered(client, n)
        most = max(most, await client.command("LLEN", keys.history(SESSION)))
    one_turn = 4  # the job may be done before anybody looks after the commit that asked for it
    assert CONSOLIDATE_AT - one_turn <= most <= CONSOLIDATE_AT + OVERSHOOT
    memory = MemoryStore(client)

    async def settled() -> bool:
        return (await memory.count_unconsolidated(SESSION)).history < CONSOLIDATE_AT

    await eventually(settled, within_s=60)
    entries = await history(client, SESSION)
    assert isinstance(entries[0], UserEntry)
    gone = int(await client.command("HGET", keys.session(SESSION), "mark"))
    assert gone + len(entries) == 2 * MESSAGES + 2 * (MESSAGES // 4), "each entry is here, or went into memory"
    assert "xylophone" in (await memory.read_memory(SCOPE)).text
    log = await memory.read_log(SCOPE)
    assert len(log) == sum(1 for request in model.requests()) - len(chats(model)), "one entry for each consolidation"
    assert len(log) >= gone // (CONSOLIDATE_AT + OVERSHOOT)
    assert not any("[RAW]" in entry for entry in log)

    sent = chats(model)
    for messages in sent:
        check_pairs(messages)
        assert len(messages) <= WINDOW + 4
    first, last = sent[0], sent[-1]
    assert "xylophone" not in first[0]["content"]
    assert "The secret word is xylophone." in last[0]["content"]
    assert not any("xylophone" in str(message["content"]) for message in last[1:])


async def test_a_worker_killed_while_it_consolidates_loses_nothing(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9 between the model call and the script: another worker does it again, and there is one entry for it."""
    model.script(save("Never.", match="<conversation>.*message 1\n", times=1, first_s=60), save("They talked."))
    small = {"MEMORY__CONSOLIDATE_AT": "20", "MEMORY__KEEP": "10", "MODEL__CLIENT": "direct", "WORKER__LEASE_S": "60"}
    await warm(*[spawn("worker", **small) for _ in range(2)])
    for n in range(1, 11):
        await say(Inbox(client), f"message {n}")
        await answered(client, n)
    doomed = await eventually(lambda: consolidator(client), within_s=60)
    await eventually(lambda: len(model.requests()) > len(chats(model)), within_s=60)
    doomed.kill()
    memory = MemoryStore(client)

    job = f"consolidate:{SESSION}"

    async def remembered() -> list[str]:
        if await client.command("HGET", keys.leases("jobs"), job) is None:
            # It rests for a minute after a crash; a test does not.
            await client.command("ZADD", keys.queue("jobs"), "XX", 1, job)
        return await memory.read_log(SCOPE)

    [entry] = await eventually(remembered, within_s=60, every_s=0.1)
    assert entry.endswith("They talked.")
    entries = await history(client, SESSION)
    assert [entry.turn for entry in entries if isinstance(entry, UserEntry)] == [6, 7, 8, 9, 10]
    assert all(not isinstance(entry, ToolEntry) for entry in entries)
    assert sum(isinstance(entry, AssistantEntry) for entry in entries) == 5
    await say(Inbox(client), "message 11")
    await answered(client, 11)
