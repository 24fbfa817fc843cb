"""A turn in quarantine runs where nobody looks: what it counts is on the page of its worker."""

from __future__ import annotations

import re

import pytest

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.crash.test_crash_points import TOOLS
from tests.gateway.harness import free_port
from tests.helpers.build import say
from tests.helpers.fleet import replies
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.monitoring import fetch
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

CHAT = "owner/p"
SESSION = f"web:{CHAT}"


def page(port: int) -> dict[str, float]:
    """What the worker's page says: name and labels, value."""
    lines = re.findall(r"^(shoal_\S+) (\S+)$", fetch(f"http://127.0.0.1:{port}/metrics"), re.MULTILINE)
    return {name: float(value) for name, value in lines}


async def put_isolated(client: RedisClient, spawn: Spawn) -> int:
    """A message with two crashes behind it, and a worker; the port of its metrics."""
    await say(Inbox(client), "poison", chat=CHAT, id="p1")
    await client.command("HSET", keys.session(SESSION), "tries", 1, "crashes", 2)
    port = free_port()
    spawn("worker", env={"PYTHONPATH": str(TOOLS)}, MODEL__CLIENT="direct", METRICS__PORT=str(port))
    await eventually(lambda: replies(client, SESSION), within_s=60)
    return port


async def test_what_a_turn_counts_in_a_child_is_on_the_page_of_its_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Its end, its calls of models and tools, its tokens, how long its person waited: once."""
    model.script(Answer(match="poison", role="user", calls=[Call("calculate", '{"expression": "6*7"}')]))
    port = await put_isolated(client, spawn)
    await eventually(lambda: page(port)["shoal_turn_seconds_count"] == 1, within_s=60)
    found = page(port)
    turns = {name: value for name, value in found.items() if name.startswith("shoal_turns_total") and value}
    assert turns == {'shoal_turns_total{outcome="done"}': 1}
    assert found['shoal_model_requests_total{model="openai/scripted",outcome="ok"}'] == 2
    assert found['shoal_model_tokens_total{direction="input",model="openai/scripted"}'] > 0
    assert found['shoal_tool_calls_total{outcome="ok",tool="calculate"}'] == 1
    assert found['shoal_answer_seconds_count{outcome="done"}'] == 1
    assert found['shoal_model_seconds_count{model="openai/scripted"}'] == 2
    assert found['shoal_quarantines_total{outcome="ended"}'] == 1


@pytest.mark.slow
async def test_a_turn_that_kills_its_child_is_counted_by_its_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """As a dead letter, and as a quarantine that proved something."""
    model.script(Answer(match="poison", calls=[Call("die", '{"word": "exit"}')], times=0))
    port = await put_isolated(client, spawn)
    await eventually(lambda: 'shoal_turns_total{outcome="dead"}' in page(port), within_s=60)
    found = page(port)
    assert found['shoal_turns_total{outcome="dead"}'] == found['shoal_dead_letters_total{reason="poison"}'] == 1
    quarantines = {name: value for name, value in found.items() if name.startswith("shoal_quarantines_total")}
    outcomes = {"ended": 0, "guilty": 1, "in_place": 0, "split": 0, "unproven": 0}
    assert quarantines == {f'shoal_quarantines_total{{outcome="{name}"}}': count for name, count in outcomes.items()}
