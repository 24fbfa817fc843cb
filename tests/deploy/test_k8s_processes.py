"""The pods of the rendered manifests as processes of this machine: one fleet from its manifests to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.gateway.harness import client
from tests.helpers.kubelet import Cluster, Running, megabytes
from tests.helpers.local_cluster import local_cluster, start_redis
from tests.helpers.wait import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The development overlay."""
    with local_cluster("dev") as made:
        yield made


@pytest.mark.timeout(300)
async def test_the_rendered_fleet_answers_and_ends_as_the_manifests_say(cluster: Cluster) -> None:
    """Redis with its users and TLS, a runner, a worker and a gateway: each by its own command, variables, user and
    mounts under a read-only root; probes are called, the agent's file is read, a command runs in the runner, memory
    stays below what is asked for, and SIGTERM ends each within its grace with code 0."""
    started: list[Running] = []
    try:
        started.append(valkey := await asyncio.to_thread(start_redis, cluster))
        worker_pod = cluster.pod("Deployment", "worker-turns")
        started.append(runner := worker_pod.run("runner"))
        await asyncio.to_thread(runner.up)
        metrics = {"SHOAL_METRICS__PORT": cluster.ours["9465"]}
        started.append(worker := worker_pod.run("shoal", metrics))
        web = {"SHOAL_METRICS__PORT": cluster.ours["9464"], "SHOAL_WEB__PORT": cluster.ours["8080"]}
        started.append(gateway := cluster.pod("Deployment", "gateway-web").run("shoal", web))
        for one in (worker, gateway):
            await asyncio.to_thread(one.up)
            await asyncio.to_thread(one.ready)
            assert one.probe("livenessProbe")
        await eventually(lambda: '"tier": "runner"' in worker.log, within_s=30)  # it is ready before it has looked
        token = cluster.secrets["shoal-web"]["token"].strip()
        async with client(f"127.0.0.1:{cluster.ours['8080']}", token) as person:
            await person.send("resume", chat="a", after=0)
            await person.next("resumed", chat="a")
            await person.say("a", "What is 17 * 23?")
            assert "391" in (await person.next("reply", chat="a"))["text"]
        for one in (worker, gateway, runner):
            asked = one.container["resources"]
            assert one.memory_mb() < megabytes(asked["requests"]["memory"]), one.container["name"]
        for one in (gateway, worker, runner, valkey):
            assert await asyncio.to_thread(one.stop) == 0, one.log
    finally:
        for one in started:
            one.kill()


@pytest.mark.timeout(120)
async def test_a_gateway_is_not_ready_without_redis_and_lives(cluster: Cluster) -> None:
    """The Service leads nobody to it; nothing restarts it."""
    pod = cluster.pod("Deployment", "gateway-web")
    gateway = pod.run("shoal", {"SHOAL_METRICS__PORT": cluster.ours["9464"], "SHOAL_WEB__PORT": cluster.ours["8080"]})
    try:
        await asyncio.to_thread(gateway.up)
        assert gateway.probe("livenessProbe")
        assert not gateway.probe("readinessProbe")
        assert await asyncio.to_thread(gateway.stop) == 0
    finally:
        gateway.kill()
