"""A new revision under load, as the manifests say: their strategy, probes, preStop, grace, and people who write on."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from proof.chaos.people import Person
from proof.chaos.verdict import Verdict, judge_person
from shared.tasks import cancel_all
from tests.helpers.fleet_fixtures import model, model_server
from tests.helpers.kubelet import Cluster
from tests.helpers.local_cluster import local_cluster, start_redis
from tests.helpers.manifests import named
from tests.helpers.openai_answer import last_user_text
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.rollout import Rollout, share
from tests.helpers.wait import eventually

__all__ = ["model", "model_server"]

WORKERS, GATEWAYS, PEOPLE = 4, 2, 8
FIRST_CALL_S, LAST_CALL_S = 1.0, 0.1  # so that whoever is told to end is before a step, with work to hand over
RESTARTING = 1012


class Visitor(Person):
    """Goes where the Service leads; `ends` counts how gateways ended its connections, `refused_by` is who did not let
    it in."""

    def __init__(self, name: str, addresses: Callable[[], list[str]], seed: int, token: str) -> None:
        super().__init__(name, addresses, random.Random(seed), token=token)
        self.ends: Counter[int] = Counter()
        self.refused_by: list[str] = []

    def expected(self, id: str) -> str:
        left, right = id.split("-")[1:]
        return f"Calculate {left} * {right}"

    async def run(self) -> None:
        while True:
            address = self._rng.choice(self._addresses())
            try:
                socket = await connect(f"ws://{address}/ws", compression=None, open_timeout=60, ping_interval=None)
            except (OSError, WebSocketException, TimeoutError) as exc:
                self.refused_by.append(f"{address}: {exc!r}")
            else:
                await self._stay(socket)
            await asyncio.sleep(self._rng.uniform(0.05, 0.3))

    async def _stay(self, socket: ClientConnection) -> None:
        """Until the gateway ends it, or says nothing for so long that a person would load the page again."""
        async with socket:
            try:
                await self._talk(socket)
            except ConnectionClosed as exc:
                self.ends[exc.rcvd.code if exc.rcvd else 0] += 1
            except TimeoutError:
                pass


class Fleet(NamedTuple):
    """Two Deployments, and who uses them."""

    workers: Rollout
    gateways: Rollout
    people: list[Visitor]


@pytest.fixture
def cluster(model: ScriptedOpenAI) -> Iterator[Cluster]:
    """The production overlay; its model is the scripted one."""
    here = f'"openai/scripted"\nclient = "direct"\napi_base = "{model.base_url}"'
    with local_cluster("production", {'"anthropic/claude-sonnet-4-5"': here}) as made:
        yield made


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[Fleet]:
    """Redis, four workers, two gateways, six people who write all the time."""
    workers = Rollout(
        cluster,
        "worker-turns",
        replicas=WORKERS,
        ports=("9465",),
        extra=lambda ours: {"SHOAL_METRICS__PORT": ours["9465"]},
    )
    gateways = Rollout(
        cluster,
        "gateway-web",
        replicas=GATEWAYS,
        ports=("8080", "9464"),
        extra=lambda ours: {
            "SHOAL_WEB__PORT": ours["8080"],
            "SHOAL_METRICS__PORT": ours["9464"],
            "SHOAL_INBOX__SENDER_PER_MINUTE": "0",  # all are one sender
        },
    )

    def service() -> list[str]:
        return [f"127.0.0.1:{one.pod.ours['8080']}" for one in gateways.endpoints]

    token = cluster.secrets["shoal-web"]["token"].strip()
    people = [Visitor(f"c{n}", service, n, token) for n in range(PEOPLE)]
    talking: list[asyncio.Task[None]] = []
    redis = await asyncio.to_thread(start_redis, cluster)
    try:
        await asyncio.gather(workers.start(), gateways.start())
        talking += [asyncio.create_task(one.run()) for one in people]
        yield Fleet(workers, gateways, people)
        await cancel_all(talking)
        await asyncio.gather(workers.stop(), gateways.stop())
    finally:
        await cancel_all(talking)
        workers.kill()
        gateways.kill()
        redis.kill()


async def answers_flow(people: list[Visitor], many: int = 1) -> None:
    """Wait until everybody has got so many more answers."""
    before = [len(one.waits) for one in people]
    await eventually(
        lambda: all(len(one.waits) >= had + many for one, had in zip(people, before, strict=True)),
        within_s=60,
        every_s=0.05,
        what="answers for everybody",
    )


def calls_of_turns(model: ScriptedOpenAI) -> Counter[tuple[str, str]]:
    """How often each call of a turn was made: what the person had said, and who spoke last."""
    found: Counter[tuple[str, str]] = Counter()
    for request in model.requests():
        messages = request.body["messages"]
        if re.fullmatch(r"Calculate \d+ \* \d+", text := last_user_text(messages)):
            found[text, messages[-1]["role"]] += 1
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_new_revision_under_load_loses_and_repeats_nothing(cluster: Cluster, model: ScriptedOpenAI) -> None:
    """Four workers, then two gateways, are replaced one by one while people write: every message is answered once and
    in order, no call of the model is made twice, pages are sent elsewhere with 1012 and always let in, every process
    ends with 0 within its grace."""
    tool = [Call("calculate", '{"expression": "2+2"}')]
    model.script(
        Answer(match="^Calculate", role="user", text="Let me see.", calls=tool, total_s=FIRST_CALL_S, times=0),
        Answer(match="^Calculate", role="tool", total_s=LAST_CALL_S, times=0),
    )
    async with running(cluster) as fleet:
        people = fleet.people
        await answers_flow(people)
        await fleet.workers.replace()
        await answers_flow(people)
        await fleet.gateways.replace()
        await answers_flow(people)
        for one in people:
            one.finish()
        await eventually(lambda: not any(one.waiting for one in people), within_s=60, every_s=0.1)
    verdict = Verdict()
    for one in people:
        judge_person(one, verdict)
    assert verdict.wrongs == dict.fromkeys(verdict.wrongs, 0)
    message = Counter(one.expected(id) for one in people for id in one.accepted)
    assert calls_of_turns(model) == {(text, who): many for text, many in message.items() for who in ("user", "tool")}
    assert [one.refused_by for one in people if one.refused_by] == [], "the Service leads to nobody who is gone"
    assert {code for one in people for code in one.ends} == {RESTARTING}
    assert sum(one.ends.total() for one in people) >= PEOPLE, "everybody was on a gateway that ended"
    assert len(fleet.workers.pods) == 2 * WORKERS
    assert len(fleet.gateways.pods) == 2 * GATEWAYS
    assert {code for rollout in (fleet.workers, fleet.gateways) for pod in rollout.codes for code in pod} == {0}
    handed_over = sum(one.log.count('"outcome": "released"') for one in fleet.workers.pods[:WORKERS])
    assert handed_over > 0, "no worker had work when it was told to end"


def test_the_fleet_that_is_rolled_is_one_that_the_overlay_may_have(cluster: Cluster) -> None:
    """So many workers and gateways as KEDA may ask for."""
    for name, many in (("worker-turns", WORKERS), ("gateway-web", GATEWAYS)):
        scaled = named(cluster.objects, "ScaledObject", name)["spec"]
        assert scaled["minReplicaCount"] <= many <= scaled["maxReplicaCount"]


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "fewest"), [(1, 0, 5, 4), ("25%", "25%", 5, 3), (0, 1, 4, 3), ("30%", 0, 6, 4)]
)
def test_a_strategy_is_read_as_a_cluster_reads_it(
    surge: int | str, unavailable: int | str, most: int, fewest: int
) -> None:
    """A part of the pods is rounded up for those that come, and down for those that may be missing."""
    assert (4 + share(surge, 4, math.ceil), 4 - share(unavailable, 4, math.floor)) == (most, fewest)
