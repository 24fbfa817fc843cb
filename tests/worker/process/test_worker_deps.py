"""A worker process, joined."""

from __future__ import annotations

from pathlib import Path

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.settings import RedisUrl, Settings
from shared.settings.sections.gateways import MetricsSettings
from shared.settings.sections.processes import DataSettings
from shared.settings.sections.redis_access import RedisSettings
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from shared.store.turns.inbox import Inbox
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say
from tests.helpers.remembering import SESSION, fill
from worker.agent.model.prompt import window
from worker.lease.lease_loop import LeaseLoop
from worker.process.worker_deps import WorkerDeps
from worker.turn.conversation import read_conversation


def long_turn(rounds: int) -> list[TranscriptEntry]:
    """A question, so many rounds of two calls each, and an answer."""
    entries: list[TranscriptEntry] = [UserEntry(content="the question", turn=1)]
    for number in range(rounds):
        calls = tuple(ToolCall(f"{number}{which}", "calculate", "{}") for which in "ab")
        entries.append(AssistantEntry(content=None, turn=1, tool_calls=calls))
        entries += [ToolEntry(call_id=call.id, name=call.name, content="x", turn=1) for call in calls]
    return [*entries, AssistantEntry(content="the answer", turn=1)]


async def test_a_turn_longer_than_the_window_does_not_hide_the_conversation(
    client: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    """40 rounds with two tools each are 122 entries: the next turn still knows what all that was about."""
    settings = Settings(
        redis=RedisSettings(url=RedisUrl(redis_url)),
        data=DataSettings(dir=tmp_path),
        workspace=WorkspaceSettings(root=tmp_path),
    )
    deps = WorkerDeps(settings, queues=["turns"], owner=nonce(), link=None)

    async def nothing(lease: object) -> None:
        raise AssertionError("no job runs here")

    [loop] = deps.make_loops(nothing)
    assert isinstance(loop, LeaseLoop)
    await say(Inbox(client), "the question")
    [claim] = await loop.queue.acquire(1)
    await Turns(client).commit(claim, history=long_turn(40), lines=[], event=TurnEvent(1, "done"))
    await say(Inbox(client), "and now?")
    [claim] = await loop.queue.acquire(1)
    seen = window(read_conversation(claim).history, settings.agent.memory_window)
    assert isinstance(seen[0], UserEntry)
    assert seen[0].content == "the question"
    assert len(seen) > settings.agent.memory_window - 5
    await loop.queue.close()
    await deps.client.close()


async def test_the_jobs_of_a_worker_count_what_they_use(client: RedisClient, redis_url: str, tmp_path: Path) -> None:
    """For the chat that they are about, so that /status and its budget see it."""
    settings = Settings(
        redis=RedisSettings(url=RedisUrl(redis_url)),
        data=DataSettings(dir=tmp_path),
        workspace=WorkspaceSettings(root=tmp_path),
        metrics=MetricsSettings(port=0),
    )
    deps = WorkerDeps(settings, queues=["jobs"], owner=nonce(), link=None)
    await deps.start()
    await fill(client, 5)
    await deps.consolidator.consolidate(SESSION, 0)
    assert (await Spending(client).read(SESSION)).tokens > 0
    await deps.close()
