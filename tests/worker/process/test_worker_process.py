"""A worker as a process: how quickly it is there, what it costs while idle, how it refuses bad settings."""

from __future__ import annotations

import contextlib
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from tests.gateway.harness import free_port
from tests.helpers.fleet import warm, workers
from tests.helpers.monitor import monitoring
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

Start = Callable[..., Process]


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def one(*args: str, **settings: str) -> Process:
        env = {"SHOAL_REDIS__URL": redis_url, **{f"SHOAL_{key}": value for key, value in settings.items()}}
        started.append(Process("worker", *args, env=env, log=tmp_path / f"worker{len(started)}.log"))
        return started[-1]

    yield one
    for process in started:
        if process.alive:
            process.kill_group()


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()
    except OSError:
        return 0, ""


async def test_a_worker_is_ready_in_under_five_seconds_and_small(client: RedisClient, start: Start) -> None:
    """Clients of models are imported after readiness; without them a worker has under 68 MB. The seconds are those of a
    core, whatever else the machine does."""
    port = free_port()
    worker = start(METRICS__PORT=str(port))
    await eventually(lambda: page(port, "/readyz")[0] == 200, within_s=60)
    assert sum(sum(one.cpu_times()[:2]) for one in worker.children()) < 5
    assert [one.kind for one in await list_processes(client)] == ["worker"], "who is ready is seen"
    process = worker.child("worker.main")
    assert process.memory_info().rss < 68e6


async def test_an_idle_worker_sends_at_most_six_commands_a_second(
    client: RedisClient, redis_url: str, start: Start
) -> None:
    """Counted by the server and on its clock, for every connection of the whole process, queues, schedules, presence
    and pub/sub together, while arq queues no cron job, which is twice a minute. What scripts call does not count."""
    worker = start(WORKER__LEASE_S="15")
    await workers(client, 1)
    await warm(worker)
    async with monitoring(redis_url, client) as monitor:
        since = await now_s(client)

        async def quiet_s() -> float:
            """How long arq has said nothing; its connections are the ones without a name."""
            nonlocal since
            await monitor.catch_up()
            if monitor.log.of(""):
                monitor.log.clear()
                since = await now_s(client)
            return await now_s(client) - since

        async def long_enough() -> bool:
            return await quiet_s() > 6

        await eventually(long_enough, within_s=60, every_s=0.5)
        elapsed_s, own = await quiet_s(), monitor.log.of("shoal-worker")
        assert own
        assert len(own) <= 6 * elapsed_s


async def now_s(client: RedisClient) -> float:
    """The server's clock."""
    seconds, micros = await client.command("TIME")
    return int(seconds) + int(micros) / 1e6


async def test_the_metrics_of_a_worker_tell_how_the_queues_stand(client: RedisClient, start: Start) -> None:
    """The reading is Redis' own, the same from every process."""
    port = free_port()
    start(METRICS__PORT=str(port))
    await eventually(lambda: page(port, "/readyz")[0] == 200, within_s=60)

    def read() -> bool:
        _, text = page(port, "/metrics")
        return {'shoal_queue_due{queue="turns"} 0.0', 'shoal_queue_running{queue="jobs"} 0.0'} <= {*text.splitlines()}

    await eventually(read)


async def test_a_drained_worker_is_not_ready_and_leaves_with_code_0(client: RedisClient, start: Start) -> None:
    """SIGTERM to the guardian: workers drain, the presence record goes, exit code 0."""
    worker = start()
    await workers(client, 1)
    worker.terminate()
    assert worker.wait() == 0
    assert await client.command("KEYS", "shoal:{0ax}:presence:*") == []


def two_ports() -> int:
    """A port that is free like the one behind it, below those that outgoing connections get."""
    for port in random.sample(range(20_000, 30_000), 1000):
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two ports beside each other are free")


async def test_two_processes_under_one_guardian_have_metrics_ports_of_their_own(
    client: RedisClient, start: Start
) -> None:
    """worker.processes: the second one takes the next port."""
    port = two_ports()
    start(METRICS__PORT=str(port), WORKER__PROCESSES="2")
    await workers(client, 2)
    await eventually(lambda: page(port, "/readyz")[0] == page(port + 1, "/readyz")[0] == 200, within_s=60)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"WORKER__TURNS": "many"}, "worker.turns"),
        ({"WORKER__TRUNS": "5"}, "did you mean SHOAL_WORKER__TURNS"),
        ({"MODEL__CLIENT": "carrier-pigeon"}, "model.client"),
        ({"REDIS__URL": "http://somewhere"}, "redis.url"),
    ],
)
def test_bad_settings_end_the_start_with_one_clear_line(start: Start, settings: dict[str, str], line: str) -> None:
    """The line names the key; the exit code is 2; no guardian goes on restarting."""
    worker = start(**settings)
    assert worker.wait() == 2
    assert len(worker.log.splitlines()) == 1
    assert line in worker.log


def test_an_unknown_queue_is_refused(start: Start) -> None:
    """`python -m worker nonsense` says which queues there are."""
    worker = start("nonsense")
    assert worker.wait() == 2
    assert "nonsense" in worker.log
