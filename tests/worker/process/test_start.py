"""What a worker imports before it is ready, and what it does with what waits for it. Nothing here is timed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import Jobs
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import free_port
from tests.helpers.build import say
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually
from tests.worker.process.test_worker_process import page

Start = Callable[..., Process]

LATER = {
    "aiohttp", "arq", "attr", "jwt", "litellm", "openai", "opentelemetry", "pydantic", "pygments",
    "redis", "requests", "starlette", "trafilatura",
}  # fmt: skip
"""Libraries that take longer to import than most of a start does, and that readiness does not need. pygments stands for
rich, which structlog asks for and does not get, see `shared.log`; jwt for it and cryptography, see `worker.arq`."""

_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\w+)", re.MULTILINE)


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts `python -m <module> <words>` that writes a line into its log for each import, when it is done."""
    started: list[Process] = []

    def one(module: str, *words: str, **settings: str) -> Process:
        env = {"SHOAL_REDIS__URL": redis_url, "SHOAL_DATA__DIR": str(tmp_path), "PYTHONPROFILEIMPORTTIME": "1"}
        env |= {f"SHOAL_{key}": value for key, value in settings.items()}
        started.append(Process(module, *words, env=env, log=tmp_path / f"{module}{len(started)}.log"))
        return started[-1]

    yield one
    for process in started:
        if process.alive:
            process.kill_group()


def imported(log: str) -> set[str]:
    """The packages that processes with this log have imported."""
    return set(_IMPORTED.findall(log))


async def test_a_worker_is_ready_without_what_only_calls_of_models_need(client: RedisClient, start: Start) -> None:
    """A heavy import that comes back into its start is named here. Later they do come: the test could see them."""
    port = free_port()
    with ScriptedOpenAI() as model:
        direct = {"MODEL__NAME": "openai/x", "MODEL__API_BASE": model.base_url, "MODEL__CLIENT": "direct"}
        worker = start("worker", **direct, METRICS__PORT=str(port))
        await eventually(lambda: page(port, "/readyz")[0] == 200, within_s=30)
        before, found, _ = worker.log.partition('"health_port"')  # in the line that says it has started
        assert found
        assert {"msgspec", "uvicorn", "worker"} <= imported(before)
        assert imported(before) & LATER == {"arq", "redis"}
        await eventually(lambda: "aiohttp" in imported(worker.log), within_s=30)
        assert imported(worker.log) & (LATER - {"arq", "redis", "aiohttp", "attr"}) == set()


async def test_a_gateway_is_ready_without_what_only_some_channels_need(client: RedisClient, start: Start) -> None:
    """The same for the other process of the fleet."""
    port = free_port()
    gateway = start("gateway", WEB__TOKENS__OWNER="sesame", WEB__PORT="0", METRICS__PORT=str(port))
    await eventually(lambda: page(port, "/readyz")[0] == 200, within_s=30)
    assert "uvicorn" in imported(gateway.log)
    assert imported(gateway.log) & (LATER - {"starlette"}) == set()


async def test_a_job_that_waits_when_a_worker_begins_is_run(client: RedisClient, start: Start) -> None:
    """It lies there when the worker begins, and nothing wakes it."""
    jobs = Jobs(client)
    job = await jobs.enqueue("probe", "hello")
    start("worker", "jobs")
    result = await eventually(lambda: jobs.result(job), within_s=30)
    assert result is not None
    assert (result.success, result.result) == (True, "hello")


async def test_the_first_turn_of_a_worker_knows_its_sandbox(client: RedisClient, start: Start) -> None:
    """A turn may come before it is known what this machine has: it waits for that, for its model is told once."""
    with ScriptedOpenAI() as model:
        await say(Inbox(client), "hello")
        worker = start("worker", MODEL__NAME="openai/x", MODEL__API_BASE=model.base_url, MODEL__CLIENT="direct")
        [request, *_] = await eventually(model.requests, within_s=30)
        names = [tool["function"]["name"] for tool in request.body["tools"]]
        assert ("exec" in names) == ('"sandbox ready"' in worker.log)
        assert '"sandbox ready"' in worker.log or '"sandbox missing"' in worker.log


def test_a_worker_that_cannot_begin_ends_its_guardian_with_it(tmp_path: Path) -> None:
    """Its exit code is theirs; it has said why. Nothing is known yet by which it could be started again."""
    script = (
        "import sys; from worker.process.guardian import Guardian;"
        "sys.exit(Guardian((sys.executable, '-c', 'import sys; sys.exit(2)')).run())"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (2, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_word_of_a_worker_ends_both(number: signal.Signals, tmp_path: Path) -> None:
    """Whoever stops Shoal in its first moment does not wait, and leaves nothing behind."""
    there = tmp_path / "there"
    silent = f"import pathlib, time; pathlib.Path({str(there)!r}).touch(); time.sleep(600)"
    script = f"""import sys
from worker.process.guardian import Guardian
sys.exit(Guardian((sys.executable, '-c', {silent!r})).run())"""
    guardian = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        while not there.exists() and guardian.poll() is None:
            pass
        guardian.send_signal(number)
        assert guardian.wait(60) == 0
    finally:
        guardian.kill()
        guardian.wait()


def test_a_worker_whose_guardian_died_before_it_could_speak_ends_with_one_line(redis_url: str) -> None:
    """Nobody waits for its settings any more."""
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs:
        command = [sys.executable, "-m", "worker.main", "--guard", f"{theirs.fileno()},abc", "--tell"]
        env = {**os.environ, "SHOAL_REDIS__URL": redis_url}
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], env=env, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "the guardian has ended; so does its worker\n")
