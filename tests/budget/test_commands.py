"""Whether a fleet keeps to its budget of commands: counted by the server, on its clock, so that no test measures time.

A slow machine sends less in a second and never more, so these hold on any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from proof.bench.chats import seated
from proof.bench.ready_model import TOOL as USE_A_TOOL
from proof.bench.stage import NO_FSYNC, Stage, Want, stage
from proof.bench.stub import model_name
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.budget.table import (
    ARQ,
    BURST,
    CHORES,
    DELTA,
    GATEWAY,
    IDLE,
    IDLE_A_SECOND,
    PERSON,
    RUNNING,
    TOOL,
    TOOL_WRITES,
    TURN,
    TURN_WRITES,
    WORKER,
    at_most,
    beyond,
)
from tests.helpers.monitor import Monitor, counted, monitoring
from tests.helpers.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHATS: Final = [f"c{n}" for n in range(10)]
IDLE_S: Final = 6.0
DELTAS: Final = 10


class Stretch:
    """What was sent in a stretch of time."""

    def __init__(self, on: Stage, monitor: Monitor) -> None:
        self._on = on
        self._monitor = monitor
        self.elapsed_s = 0.0
        """How long it was, by the server's clock."""

    def sent(self, name: str) -> Counter[str]:
        """Commands of the connections that call themselves so."""
        return counted(self._monitor.log.of(name))

    def writes(self, name: str) -> int:
        """How often those went to the network."""
        assert self._on.relay is not None
        return sum(
            many for client, many in self._on.relay.writes.items() if self._monitor.log.names.get(client) == name
        )


@asynccontextmanager
async def stretch(on: Stage, monitor: Monitor) -> AsyncIterator[Stretch]:
    """Count from here to the end of the block."""
    assert on.relay is not None
    await monitor.catch_up()
    made, began_s = Stretch(on, monitor), await now_s(on.client)
    monitor.log.clear()
    on.relay.writes.clear()
    yield made
    await monitor.catch_up()
    made.elapsed_s = await now_s(on.client) - began_s


async def now_s(client: RedisClient) -> float:
    """The server's clock."""
    seconds, micros = await client.command("TIME")
    return int(seconds) + int(micros) / 1e6


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A gateway and a worker whose model is a function call, behind a relay."""
    folder = tmp_path_factory.mktemp("fleet")
    async with stage(folder, Want(ready=True, relayed=True, fsync=NO_FSYNC)) as on:
        yield on


async def forgotten(fleet: Stage) -> None:
    """Wait until the gateway has forgotten the chats of pages that left, and the worker listens: that takes commands,
    too."""

    async def at_rest() -> bool:
        pages, stops = await fleet.client.pipeline(
            [("PUBSUB", "CHANNELS", "shoal:{0ax}:live:*"), ("PUBSUB", "NUMSUB", keys.CONTROL)]
        )
        return not pages and stops[1] > 0

    await eventually(at_rest, within_s=30)


async def talked(fleet: Stage, text: str) -> Stretch:
    """A turn in each chat, one after the other, with pages that have their chats shown."""
    await forgotten(fleet)
    async with monitoring(fleet.url, fleet.client) as monitor, seated(fleet.address, CHATS, 1) as table:
        await table.talk(USE_A_TOOL)  # every script is known to the server from here on
        async with stretch(fleet, monitor) as seen:
            await table.talk(text)
    return seen


@pytest.mark.parametrize(
    ("text", "besides", "writes"),
    [pytest.param("hello", {}, 0, id="plain"), pytest.param(USE_A_TOOL, TOOL, TOOL_WRITES, id="with a tool")],
)
async def test_a_whole_turn_sends_what_its_budget_allows(
    fleet: Stage, text: str, besides: dict[str, int], writes: int
) -> None:
    """Every command of a turn stands in the table, with how often; together they go to the network so many times."""
    seen, turns = await talked(fleet, text), len(CHATS)
    per_turn = {GATEWAY: Counter(TURN[GATEWAY]), WORKER: Counter(TURN[WORKER]) + Counter(besides)}
    most_writes = {GATEWAY: TURN_WRITES[GATEWAY], WORKER: TURN_WRITES[WORKER] + writes}
    for name in (GATEWAY, WORKER):
        for_nothing = at_most((*IDLE[name], *(RUNNING if name == WORKER else PERSON)), seen.elapsed_s)
        allowed = for_nothing + Counter({what: many * turns for what, many in per_turn[name].items()})
        sent = seen.sent(name)
        assert not beyond(sent, allowed, seen.elapsed_s, chores=name == WORKER)
        for what in per_turn[name].keys() - for_nothing.keys() - {"turns/show_text"}:
            assert sent[what] == per_turn[name][what] * turns, what  # or it would not be the turn that was counted
        chores = CHORES.at_most(seen.elapsed_s) if name == WORKER else 0
        assert seen.writes(name) <= most_writes[name] * turns + for_nothing.total() + chores


@pytest.mark.parametrize(
    ("how", "deltas"),
    [
        pytest.param(model_name(DELTAS, gap_ms=60), DELTAS * DELTA, id="one by one"),
        pytest.param(model_name(100), BURST, id="together"),
    ],
)
async def test_deltas_are_bundled_and_cost_a_gateway_nothing(fleet: Stage, how: str, deltas: int) -> None:
    """A delta that comes alone is one command of its worker, a hundred that come together are one, or none where the
    reply is there as soon; no gateway sends anything for them."""
    seen = await talked(fleet, how)
    assert (0 if deltas == BURST else 1) <= seen.sent(WORKER)["turns/show_text"] <= deltas * len(CHATS)
    per_turn = Counter({what: many * len(CHATS) for what, many in TURN[GATEWAY].items()})
    allowed = at_most((*IDLE[GATEWAY], *PERSON), seen.elapsed_s) + per_turn
    assert not beyond(seen.sent(GATEWAY), allowed, seen.elapsed_s, chores=False)


async def test_idle_processes_send_what_their_budget_allows(fleet: Stage) -> None:
    """Whatever a worker and a gateway send while there is nothing to do stands in the table, with how often."""
    await forgotten(fleet)
    async with monitoring(fleet.url, fleet.client) as monitor:
        async with stretch(fleet, monitor) as seen:
            began_s = await now_s(fleet.client)

            async def over() -> bool:
                return await now_s(fleet.client) - began_s >= IDLE_S

            await eventually(over, within_s=60, every_s=0.2)
        for name in (GATEWAY, WORKER, ARQ):
            allowed = at_most(IDLE[name], seen.elapsed_s)
            assert not beyond(seen.sent(name), allowed, seen.elapsed_s, chores=name != GATEWAY)
        assert seen.sent(WORKER)["blpop"]  # it was there
        assert seen.sent(GATEWAY)["hello"]


async def test_the_table_of_an_idle_process_adds_up() -> None:
    """What it allows by name is no more than what a process may send in all."""
    for name, most in IDLE_A_SECOND.items():
        assert sum(every.commands / every.seconds for _, every in IDLE[name]) <= most
