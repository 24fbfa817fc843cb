"""Fixtures that every test may use, and what holds for each test: see CONTRIBUTING.md, "Tests"."""

from __future__ import annotations

import gc
import os
import platform
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import structlog
from hypothesis import strategies as st

from console.up.supervisor import Reaper
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.helpers import durations, kinds, left_open, starts
from tests.helpers import valkey as valkey_helper
from tests.helpers.own_time import OwnTime
from tests.helpers.scenery import Scenery

ROOT: Final = Path(__file__).parent
hypothesis.settings.register_profile(
    "shoal", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("shoal")  # how fast an example is made says something of the machine only
# Rich's tracebacks, structlog's own choice, hold the event loop for a tenth of a second or more.
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _plain])
FAST_TEST_S: Final = 2.0
TOO_SLOW: Final = "a fast test took"
SLOWEST: Final = 30

_left_open: Final = left_open.LeftOpen()
_valkey: Final[list[EmbeddedValkey]] = []


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """One real Valkey for each worker. A test may kill() or restart() it; the next one finds it running again."""
    folder = tmp_path_factory.mktemp("valkey")
    starts.allow(folder)
    reaper = Reaper()  # no server outlives a run that was killed
    starts.collected()

    def spawned(pid: int) -> None:
        reaper.watch(step=0, pid=pid)
        _left_open.expect(pid)

    server = EmbeddedValkey(folder, fsync="no", spawned=spawned)
    server.start()
    _valkey.append(server)
    yield server
    _valkey.clear()
    server.stop()
    reaper.close()


@pytest.fixture(scope="session")
def scenery() -> Iterator[Scenery]:
    """A fakeredis for tests in which Redis is scenery."""
    with Scenery() as server:
        yield server


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The address of a Redis that holds nothing: a real Valkey, or fakeredis where it is scenery (`kinds.SCENERY`)."""
    if kinds.among(kinds.SCENERY, _path(request.node), request.node.name):
        scenery: Scenery = request.getfixturevalue("scenery")
        return scenery.fresh()
    return valkey_helper.fresh(request.getfixturevalue("valkey"))


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    """A client of the test's own, on a Redis that holds nothing."""
    made = RedisClient(redis_url)
    yield made
    await made.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only a whole run of the tests that `make test` leaves out knows how long they take."""
    parser.addoption("--durations-file", action="store_true", help="write tests/durations.json after a whole run")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C works in what tests start, also when they run in the background of a script, where it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    platform.processor()  # starts `uname`, once in a process: OpenAI's client asks for it, in whichever test is first
    left_open.watch()
    starts.watch()


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: two for each core, because tests wait more than they compute."""
    return 2 * _cores()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` and `make test-all` do not even import what they will not run."""
    if collection_path.is_dir():
        return None
    return kinds.needless(config.option.markexpr, collection_path.relative_to(ROOT).as_posix()) or None


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its path, and let the files that take longest begin."""
    known = durations.read()
    for item in items:
        path = _path(item)
        if kinds.among(kinds.PROCESS, path, item.name):
            item.add_marker("process")
        elif kinds.among(kinds.SLOW, path, item.name):
            item.add_marker("slow")
    items.sort(key=lambda item: -known.get(_path(item), 0.0))


@pytest.hookimpl(optionalhook=True)  # xdist may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """`--dist loadgroup`: see `Units`."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.helpers.units import Units

    return Units(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly all that importing and collecting make lives until the end: the collector would look through it in vain,
    for a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_finish() -> Generator[None]:
    """From here on the collector looks only at what tests make."""
    yield
    left_open.collect_first()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Look at what exists before a test and its fixtures."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        _prepare_hypothesis()
    _left_open.begin()
    starts.collected()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Let processes and threads of a fixture that several tests share outlive the first of them."""
    if fixturedef.scope == "function":
        return (yield)
    with _left_open.shared():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """A fast test starts no process and takes at most two seconds."""
    if not _is_fast(item):
        return (yield)
    time = OwnTime(*(server.pid for server in _valkey))
    yield
    if (took := time.seconds()) > FAST_TEST_S:
        pytest.fail(f"{TOO_SLOW} {took:.1f} s: make it faster, or list it in tests/helpers/kinds.py", False)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all that ends with the test
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A test closes what it opens."""
    try:
        yield
    finally:
        if isinstance(item, pytest.Function):
            item.funcargs.clear()  # else fixtures' values are collected in the next test
        left, started = _left_open.end(), starts.collected()
    if left:
        pytest.fail("left open: " + "; ".join(left), False)
    if started and _is_fast(item):
        pytest.fail(f"a fast test started a process ({'; '.join(started)}): list it in tests/helpers/kinds.py", False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A whole run notes its durations."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and exitstatus == pytest.ExitCode.OK and session.config.option.durations_file:
        reports = [report for found in reporter.stats.values() for report in found if hasattr(report, "duration")]
        took = durations.summed((report.nodeid.partition("::")[0], report.duration) for report in reports)
        durations.write(durations.merged(durations.read(), took))


@cache
def _prepare_hypothesis() -> None:
    """Let Hypothesis read the constants of all our modules and its table of characters, which takes seconds, outside of
    the first test that uses it."""

    @hypothesis.settings(max_examples=1, database=None)
    @hypothesis.given(st.text())
    def use(text: str) -> None:
        pass

    use()


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def _is_fast(item: pytest.Item) -> bool:
    return not item.get_closest_marker("process") and not item.get_closest_marker("slow")


def _cores() -> int:
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2)
