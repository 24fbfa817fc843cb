"""Messages that kill the process they run in, beside others that do not."""

from __future__ import annotations

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.crash.test_crash_points import TOOLS
from tests.helpers.build import say
from tests.helpers.fleet import replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

VERDICT_S = 60.0
BYSTANDERS = 5


async def test_a_message_that_kills_workers_is_convicted_alone(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Two workers die with it beside other turns; then it runs apart, dies alone, and gets an apology with a reference.
    The next message of its chat is answered, and so are those that stood beside it: once, with no dead letter."""
    model.script(
        Answer(match="poison", calls=[Call("die", '{"word": "exit"}')], delta_s=0.2, times=0),
        Answer(match="slow", text="slow but fine", held=True, times=0),
    )
    worker = spawn("worker", env={"PYTHONPATH": str(TOOLS)}, MODEL__CLIENT="direct")
    await warm(worker)
    inbox = Inbox(client)
    for number in range(BYSTANDERS):
        await say(inbox, "slow", chat=f"owner/b{number}", id=f"b{number}")
    await say(inbox, "poison", chat="owner/p", id="p1")
    await say(inbox, "and now?", chat="owner/p", id="p2")

    async def all_answered() -> bool:
        chats = ["web:owner/p"] + [f"web:owner/b{number}" for number in range(BYSTANDERS)]
        counts = [len(await replies(client, chat)) for chat in chats]
        return counts == [2] + [1] * BYSTANDERS

    await eventually(lambda: client.command("XLEN", keys.DEAD), within_s=VERDICT_S, what="the verdict")
    model.release()
    await eventually(all_answered, within_s=30, what="all answers")
    apology, answer = await replies(client, "web:owner/p")
    assert "put it aside" in apology
    assert "reference" in apology
    assert answer == "echo: and now?"
    for number in range(BYSTANDERS):
        assert await replies(client, f"web:owner/b{number}") == ["slow but fine"]
    [letter] = await client.command("XRANGE", keys.DEAD, "-", "+")
    assert b"poison" in letter[1][5]
    assert worker.log.count("quarantined") >= 1


async def test_a_message_that_eats_all_memory_meets_the_limit_of_its_quarantine(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Two crashes behind it, it runs with little memory: what it asks for fails, and the machine is spared. A tool that
    runs out of memory is a tool that failed, so the turn goes on and is answered."""
    model.script(
        Answer(match="poison", role="tool", text="that did not work", times=0),
        Answer(match="poison", role="user", calls=[Call("die", '{"word": "memory"}')], times=0),
    )
    await say(Inbox(client), "poison", chat="owner/p", id="p1")
    await client.command("HSET", keys.session("web:owner/p"), "tries", 1, "crashes", 2)
    worker = spawn("worker", env={"PYTHONPATH": str(TOOLS)}, MODEL__CLIENT="direct", WORKER__QUARANTINE_MB="512")
    await eventually(lambda: replies(client, "web:owner/p"), within_s=30)
    assert await replies(client, "web:owner/p") == ["that did not work"]
    await eventually(lambda: "quarantine over" in worker.log, within_s=30)


async def test_a_message_that_blocks_its_event_loop_is_killed_in_quarantine(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A child that is silent for some seconds is killed and its turn convicted, while its parent answers others. Twenty
    seconds are shortened to six."""
    model.script(Answer(match="poison", calls=[Call("die", '{"word": "loop"}')], times=0))
    await say(Inbox(client), "poison", chat="owner/p", id="p1")
    await client.command("HSET", keys.session("web:owner/p"), "tries", 1, "crashes", 2)
    worker = spawn("worker", env={"PYTHONPATH": str(TOOLS), "SILENT_TICKS": "12"}, MODEL__CLIENT="direct")
    await eventually(lambda: "quarantined" in worker.log, within_s=60)
    await say(Inbox(client), "hello", chat="owner/b", id="b1")
    await eventually(lambda: replies(client, "web:owner/b"))
    await eventually(lambda: replies(client, "web:owner/p"), within_s=60)
    assert "put it aside" in (await replies(client, "web:owner/p"))[0]
