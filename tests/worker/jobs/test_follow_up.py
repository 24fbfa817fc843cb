"""The jobs that a turn makes due when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import ModelError
from shared.ids import nonce
from shared.messages.transcript import AssistantEntry
from shared.settings import AgentSettings, Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs, SessionJobs
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message
from tests.helpers.wait import eventually
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.run_turn import RunTurn
from worker.jobs.follow_up import FollowUpJobs
from worker.lease.lease_loop import LeaseLoop


async def answer(conversation: Any, _journal: object, _show: object) -> AgentResult:
    """An agent that answers at once."""
    entries = (conversation.entry, AssistantEntry(content="hello", turn=conversation.entry.turn))
    return AgentResult(content="hello", entries=entries, rounds=1, usage=TokenUsage())


async def fail(_conversation: object, _journal: object, _show: object) -> AgentResult:
    """An agent whose model refuses."""
    raise ModelError("bad_request", "no", retryable=False)


@pytest.mark.parametrize(
    ("channel", "principal", "agent", "titles", "jobs"),
    [
        ("web", "owner", answer, True, [b"title:web:owner/a"]),
        ("web", "owner", answer, False, []),
        ("web", "owner", fail, True, []),
        ("web", None, answer, True, []),
        ("api", "owner", answer, True, []),
        ("telegram", None, answer, True, []),
    ],
)
async def test_only_answered_chats_with_a_list_get_titles(
    client: RedisClient, channel: str, principal: str | None, agent: Any, titles: bool, jobs: list[bytes]
) -> None:
    """Those of the page and the console: not a platform's, no requests of programs, and none where it is turned off."""
    settings = Settings(agent=AgentSettings(titles=titles))
    follow_up = FollowUpJobs(SessionJobs(Jobs(client)), settings)
    runner = RunTurn(client, Turns(client), agent, settings=settings.agent, on_commit=follow_up)
    loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=1, run=runner)
    await Inbox(client).ingest(message("hello", channel=channel), principal=principal)
    assert await loop.claim_once()
    await eventually(lambda: not loop.running)
    assert await client.command("ZRANGE", keys.queue("jobs"), 0, -1) == jobs
    await loop.queue.close()
