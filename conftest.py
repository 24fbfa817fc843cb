"""Fixtures that every test may use."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from console.up.child import Reaper
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.helpers import left_open
from tests.helpers import valkey as valkey_helper

ROOT: Final = Path(__file__).parent
OF_PROCESSES: Final = (
    "proof/chaos/",
    "tests/crash/",
    "tests/deploy/test_acl.py",
    "tests/deploy/test_backup.py",
    "tests/deploy/test_compose.py",
    "tests/deploy/test_k8s_processes.py",
    "tests/deploy/test_operations.py",
    "tests/deploy/test_readiness.py",
    "tests/deploy/test_rolling_update.py",
    "tests/deploy/test_watched_fleet.py",
    "tests/e2e/",
    "tests/gateway/test_chat_channel.py",
    "tests/gateway/test_start.py",
    "tests/records/test_rolling_update.py",
    "tests/console/test_screen.py",
    "tests/console/test_up.py",
    "tests/worker/mcp/",
    "tests/worker/sandbox/",
    "tests/worker/process/test_guardian.py",
    "tests/worker/arq/test_lease_worker.py",
    "tests/worker/process/test_worker_process.py",
)
"""Where real processes are started and killed, against the clock of the machine. One test of FLEETS and
one of the others runs at a time."""

FLEETS: Final = ("proof/chaos/", "tests/crash/")

OF_SERVERS: Final = ("tests/contracts/channels/",)
"""Where servers in this process die and come back, against the same clock; any number of these run at once."""

REPEATS: Final = 3


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """One real Valkey for the whole run. A test may kill() or restart() it; the next one finds it running again."""
    reaper = Reaper()  # no server outlives a run that was killed
    server = EmbeddedValkey(
        tmp_path_factory.mktemp("valkey"), fsync="no", spawned=lambda pid: reaper.watch(step=0, pid=pid)
    )
    server.start()
    yield server
    server.stop()
    reaper.close()


@pytest.fixture
def redis_url(valkey: EmbeddedValkey) -> str:
    """The address of a Valkey that holds nothing."""
    return valkey_helper.fresh(valkey)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    """A client of the test's own, on a Valkey that holds nothing."""
    made = RedisClient(redis_url)
    yield made
    await made.close()


def pytest_configure() -> None:
    """Ctrl-C works in what tests start, also when they run in the background of a script, where it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    left_open.watch()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all that ends with the test
def pytest_runtest_teardown() -> Generator[None]:
    """A test closes what it opens."""
    try:
        yield
    finally:
        left = left_open.taken()
    if left:
        pytest.fail(f"connections were left open: {', '.join(left)}")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of real processes that fails is run once more: other load on the machine can hold a process for seconds.
    All others are run once. With `-n`, at most two of processes run at a time."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        if path.startswith((*OF_PROCESSES, *OF_SERVERS)):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if path.startswith(OF_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("fleets" if path.startswith(FLEETS) else "processes"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Many repeats are no accident of the machine."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.OK:
        return
    repeated = len(reporter.stats.get("rerun", ()))
    if repeated > REPEATS:
        reporter.write_line(f"{repeated} tests passed only when they were repeated; at most {REPEATS} may", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
