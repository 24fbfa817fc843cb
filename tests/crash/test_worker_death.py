"""Workers killed for real, in the middle of an answer; they call a scripted model over HTTP, some by LiteLLM."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

from shared.messages.live import DeltaEvent
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import Seen, history, holder, replies, warm, watching, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
WORDS = " ".join(f"word{i}" for i in range(60))
HELD = Answer(text=WORDS, delta_s=0.05, held_after=45, times=0)
"""An answer that stands in its middle until `release`, however long a busy machine takes to look at it."""

LONG_LEASE_S = 60.0


async def stands(seen: Seen) -> None:
    """Wait until people have read most of what the held answer says."""
    await eventually(lambda: any("word40" in text for text in seen.shown()), what="the first words")


async def test_a_worker_killed_while_it_streams_is_replaced_long_before_its_lease_ends(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9: the guardian frees the lease, another attempt streams into the same turn, one reply is kept. That this
    takes less than a second is for `proof.chaos.takeover` to measure."""
    model.script(HELD)
    await warm(spawn("worker", WORKER__LEASE_S=str(LONG_LEASE_S), MODEL__CLIENT="litellm"))
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await stands(seen)
        worker = await holder(client, SESSION)
        await warm(spawn("worker", WORKER__LEASE_S=str(LONG_LEASE_S)))
        killed = time.monotonic()
        worker.kill()
        began = await eventually(lambda: seen.started_at(2), within_s=LONG_LEASE_S)
        assert began - killed < LONG_LEASE_S / 2, "its lease had longer to go, for it was renewed every fifth of it"
        model.release()
        await eventually(lambda: replies(client, SESSION))
        assert {delta.turn for delta in seen.deltas()} == {1}
        assert seen.deltas(2)[0].full, "the second attempt begins by replacing what is shown"
    assert await replies(client, SESSION) == [WORDS]
    assert [type(entry) for entry in await history(client, SESSION)] == [UserEntry, AssistantEntry]


async def test_the_text_that_a_person_reads_goes_on_where_it_stood(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """However much there is of it: the next letter takes a takeover and the model's first words, not the whole text
    again. No letter on the screen changes, and the reply is one text. `proof.chaos.takeover` measures how long."""
    model.script(HELD)
    await warm(*[spawn("worker") for _ in range(2)])
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await stands(seen)
        worker = await holder(client, SESSION)
        worker.kill()
        await eventually(lambda: len(model.requests()) == 2)
        model.release()
        letter = await eventually(lambda: seen.grown_at(2))
        before = [news for at, news in seen.news if at <= letter and isinstance(news, DeltaEvent) and news.attempt == 2]
        assert len(before) <= 3, "what is shown, the word at the seam, and the one after it"
        await eventually(lambda: replies(client, SESSION))
        texts = seen.shown()
    assert all(later.startswith(text) for text, later in pairwise(texts))
    assert await replies(client, SESSION) == [WORDS]
    assert [type(entry) for entry in await history(client, SESSION)] == [UserEntry, AssistantEntry]
    assert await client.command("EXISTS", keys.live(SESSION)) == 0
    first, second = model.requests()
    assert len(second.body["messages"]) == len(first.body["messages"]) + 2


async def test_the_only_worker_is_replaced_by_its_spare_before_a_person_looks_up(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """No process has to start: a process that was there before goes on, with a model that is ready."""
    model.script(HELD)
    fleet = spawn("worker", "--spare")
    await eventually(lambda: fleet.log.count("model ready") == 2, within_s=60, every_s=0.05)
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await stands(seen)
        worker = await holder(client, SESSION)
        before = {process.pid for process in fleet.children()}
        worker.kill()
        await eventually(lambda: len(model.requests()) == 2)
        assert (await holder(client, SESSION)).pid in before - {worker.pid}
        model.release()
        assert await eventually(lambda: seen.grown_at(2))
        await eventually(lambda: replies(client, SESSION))
    assert await replies(client, SESSION) == [WORDS]


async def test_a_killed_process_group_is_replaced_when_its_lease_has_lapsed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Guardian and worker die together, as with a node: the lease lapses and the other worker takes over. That this
    takes the lease and a second at most is for `proof.chaos.takeover --group` to measure."""
    model.script(HELD)
    groups = [spawn("worker", WORKER__LEASE_S="3") for _ in range(2)]
    await warm(*groups)
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await stands(seen)
        worker = await holder(client, SESSION)
        [group] = [group for group in groups if worker.pid in [child.pid for child in group.children()]]
        group.kill_group()
        await eventually(lambda: len(model.requests()) == 2)
        model.release()
        await eventually(lambda: replies(client, SESSION))
    assert await replies(client, SESSION) == [WORDS]
    assert [type(entry) for entry in await history(client, SESSION)] == [UserEntry, AssistantEntry]


async def test_a_stopped_worker_group_writes_nothing_when_it_goes_on(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """SIGSTOP of guardian and worker past the lease, then SIGCONT: the successor's reply stands alone."""
    model.script(HELD)
    groups = [spawn("worker", WORKER__LEASE_S="2") for _ in range(2)]
    await warm(*groups)
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await stands(seen)
        worker = await holder(client, SESSION)
        [group] = [group for group in groups if worker.pid in [child.pid for child in group.children()]]
        os.killpg(group.pid, signal.SIGSTOP)
        await eventually(lambda: seen.started_at(2))
        os.killpg(group.pid, signal.SIGCONT)
        model.release()
        await eventually(lambda: replies(client, SESSION))
        await eventually(lambda: "lease lost" in group.log)
    assert await replies(client, SESSION) == [WORDS]
    assert [type(entry) for entry in await history(client, SESSION)] == [UserEntry, AssistantEntry]


async def test_sigterm_hands_a_turn_over_without_repeating_its_model_call(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Drain: the running model call ends, its tool calls are in the ledger, another worker goes on from there."""
    model.script(
        Answer(
            match="^sum",
            text="Let me see " + "hm " * 40,
            calls=[Call("calculate", '{"expression": "2+2"}')],
            delta_s=0.03,
        ),
        Answer(match="^sum", text="It is four."),
    )
    first = spawn("worker", MODEL__CLIENT="litellm")
    await warm(first)
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "sum")
        await eventually(lambda: seen.deltas())
        spawn("worker")
        await workers(client, 2)
        first.terminate()
        await eventually(lambda: replies(client, SESSION))
    assert first.wait() == 0
    assert await replies(client, SESSION) == ["It is four."]
    assert len(model.requests()) == 2
    assert await client.command("HGET", keys.session(SESSION), "crashes") is None


async def test_sigterm_lets_a_final_answer_end(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """A reply that is being streamed is finished and committed before the worker leaves; exit code 0."""
    model.script(Answer(text=WORDS, delta_s=0.03))
    worker = spawn("worker")
    await workers(client, 1)
    async with watching(client, SESSION) as seen:
        await say(Inbox(client), "tell me")
        await eventually(lambda: seen.deltas())
        worker.terminate()
        assert worker.wait() == 0
    assert await replies(client, SESSION) == [WORDS]
    assert len(model.requests()) == 1
