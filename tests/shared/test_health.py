from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from shared.errors import SettingsError
from shared.process.listening import HealthServer


class Readiness:
    """Says what the test wants."""

    reason: str | None = None

    def __call__(self) -> str | None:
        return self.reason


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
async def web(readiness: Readiness) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a running server on any free port."""
    server = HealthServer("127.0.0.1", 0, readiness)
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        yield client
    await server.stop()


async def test_a_process_that_answers_is_healthy(web: httpx.AsyncClient, readiness: Readiness) -> None:
    """Liveness does not depend on Redis or on anything else: a restart would not bring that back."""
    readiness.reason = "redis is away"
    answer = await web.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_readiness_follows_the_process_and_gives_its_reason(web: httpx.AsyncClient, readiness: Readiness) -> None:
    """503 takes the process out of the balancing, the text tells the operator why."""
    assert (await web.get("/readyz")).status_code == 200
    readiness.reason = "draining"
    answer = await web.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "draining\n")
    readiness.reason = None
    assert (await web.get("/readyz")).status_code == 200


async def test_other_pages_and_methods_are_refused(web: httpx.AsyncClient) -> None:
    """Three pages, read only."""
    assert (await web.get("/")).status_code == 404
    assert (await web.post("/metrics")).status_code == 405
    head = await web.head("/healthz")
    assert (head.status_code, head.text) == (200, "")


async def test_a_port_in_use_stops_the_start_with_the_name_of_the_setting() -> None:
    """One line that says what to change."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"metrics\.port {port} on '127\.0\.0\.1' is taken.*0 = any free"):
            await HealthServer("127.0.0.1", port, lambda: None).start()


async def test_an_address_that_is_not_ours_stops_the_start_with_the_name_of_the_setting() -> None:
    """The same for the host."""
    with pytest.raises(SettingsError, match=r"metrics\.(host|port).*'192\.0\.2\.1'"):
        await HealthServer("192.0.2.1", 0, lambda: None).start()


async def test_a_stopped_server_gives_its_port_back_and_signals_were_never_its_own() -> None:
    """The process decides what SIGTERM means."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server = HealthServer("127.0.0.1", 0, lambda: None)
    await server.stop()
    await server.start()
    port = server.port
    await asyncio.sleep(0)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    await server.stop()
    again = HealthServer("127.0.0.1", port, lambda: None)
    await again.start()
    assert again.port == port
    await again.stop()


# --- shared/process/service.py, as a process

SERVICE = """
import asyncio, json, sys
from shared.errors import SettingsError
from shared.process.service import run

async def main(stop):
    print("started", type(asyncio.get_running_loop()).__module__, flush=True)
    if sys.argv[1] == "settings":
        raise SettingsError("a.b is wrong\\nc.d is missing")
    await stop.wait()
    print("draining", flush=True)
    if sys.argv[1] == "stuck":
        await asyncio.Event().wait()
    return int(sys.argv[2])

sys.exit(run(main))
"""


def service(*arguments: str) -> subprocess.Popen[str]:
    """A process that runs `SERVICE`."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def next_line(process: subprocess.Popen[str]) -> str:
    """What it prints next."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", [0, 3])
def test_the_first_signal_drains_and_the_exit_code_is_that_of_the_service(sig: signal.Signals, code: int) -> None:
    """SIGTERM drains, exit code 0: the contract of every process."""
    with service("drain", str(code)) as process:
        assert next_line(process).startswith("started uvloop")
        process.send_signal(sig)
        assert next_line(process) == "draining"
        assert process.wait(10) == code


def test_the_second_signal_ends_a_drain_that_hangs() -> None:
    """Whoever presses Ctrl-C twice does not want to wait."""
    with service("stuck", "0") as process:
        next_line(process)
        process.send_signal(signal.SIGTERM)
        assert next_line(process) == "draining"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT


def test_wrong_settings_end_the_start_with_their_lines_and_no_traceback() -> None:
    """One clear line each."""
    with service("settings", "0") as process:
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 2
        assert errors == "a.b is wrong\nc.d is missing\n"
