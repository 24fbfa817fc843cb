"""What every test is held to, tried on tests that break it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import durations, kinds, starts
from tests.helpers.left_open import LeftOpen
from tests.helpers.own_time import OwnTime, delays_of
from tests.helpers.units import unit

ROOT = Path(__file__).parents[1]
ENTRIES = sorted({*kinds.PROCESS, *kinds.SLOW, *kinds.SCENERY, *kinds.TOGETHER, *kinds.LITELLM})


@pytest.fixture
def left() -> Iterator[LeftOpen]:
    made = LeftOpen(grace_s=0.05)
    made.begin()
    yield made
    made.end()


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_of_the_tables_names_tests_that_exist(entry: str) -> None:
    """A file or a test that was renamed would quietly change its kind."""
    where, _, part = entry.partition("::")
    path = ROOT / where
    assert path.is_dir() if where.endswith("/") else path.is_file()
    if part.startswith("test_"):
        assert f"def {part}" in path.read_text(encoding="utf-8")


def test_the_makefile_runs_the_two_halves() -> None:
    """No test is in neither of them."""
    lines = (ROOT / "Makefile").read_text()
    assert f'-m "{kinds.FAST}"' in lines
    assert '-m "process or slow"' in lines


def test_a_kind_is_a_matter_of_path_and_name() -> None:
    """A folder, a file, or some tests of a file."""
    entries = ("tests/crash/", "tests/a.py", "tests/b.py::[exec", "tests/b.py::test_one")
    assert kinds.among(entries, "tests/crash/test_x.py", "test_y")
    assert kinds.among(entries, "tests/a.py", "test_y")
    assert kinds.among(entries, "tests/b.py", "test_two[exec, runner]")
    assert kinds.among(entries, "tests/b.py", "test_one[1]")
    assert not kinds.among(entries, "tests/b.py", "test_two[web]")
    assert not kinds.among(entries, "tests/b.py")
    assert not kinds.among(entries, "tests/a.py.py", "test_y")


def test_a_thread_that_goes_on_is_named(left: LeftOpen) -> None:
    """Until it ends."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="a thread of ours")
    thread.start()
    assert left.end() == ["the thread 'a thread of ours'"]
    stop.set()
    thread.join()
    assert left.end() == []


def test_what_several_tests_share_may_stay(left: LeftOpen) -> None:
    """A fixture of a module outlives its first test."""
    stop = threading.Event()
    with left.shared():
        thread = threading.Thread(target=stop.wait)
        thread.start()
    assert left.end() == []
    stop.set()
    thread.join()


def test_a_task_that_its_loop_must_cancel_is_named(left: LeftOpen) -> None:
    """The loop ends it, and the test has not waited for it."""

    async def main() -> None:
        asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="a task of ours")
        await asyncio.sleep(0)

    asyncio.run(main())
    [found] = left.end()
    assert "a task of ours" in found


def test_a_connection_that_is_not_closed_is_named(left: LeftOpen) -> None:
    """With its two ends."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
        await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        server.close()
        return port

    port = asyncio.run(main())
    assert any(found.startswith("the connection") and str(port) in found for found in left.end())


def test_a_finalizer_that_complains_fails_the_test_that_made_it(left: LeftOpen) -> None:
    """Also of what only the collector would find."""

    class Unhappy:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            raise ResourceWarning("nobody closed this")

    Unhappy()
    [found] = left.end()
    assert "nobody closed this" in found


def test_a_process_that_a_fast_test_starts_is_noted() -> None:
    """With the lines that did it; none of them is started here."""
    with pytest.raises(FileNotFoundError):
        subprocess.Popen(["/nowhere/at/all"])
    [noted] = starts.collected()
    assert "/nowhere/at/all" in noted
    assert Path(__file__).name in noted


def test_the_test_that_loads_a_library_pays_for_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that follow have it for nothing."""
    time = OwnTime()
    assert time.seconds() > 0
    for number in range(50):
        monkeypatch.setitem(sys.modules, f"a_module_of_ours_{number}", sys)
    assert time.seconds() == 0


def test_every_thread_of_a_process_is_asked_how_long_it_waited_for_a_processor() -> None:
    """A test also waits for those that it has started."""
    if not Path("/proc/self/task").exists():
        pytest.skip("only Linux says how long a thread waited for a processor")
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    before = len(dict(delays_of("self")))
    thread.start()
    assert len(dict(delays_of("self"))) == before + 1
    stop.set()
    thread.join()


def test_a_duration_that_is_about_right_stays() -> None:
    """A run seldom changes the file."""
    old = {"a.py": 20.0, "b.py": 20.0, "gone.py": 9.0, "small.py": 3.0}
    new = {"a.py": 25.0, "b.py": 41.2, "new.py": 7.7, "small.py": 1.0, "tiny.py": 0.5}
    assert durations.merged(old, new) == {"a.py": 20.0, "b.py": 41.0, "new.py": 8.0, "small.py": 3.0}


def test_tests_that_share_a_fleet_go_to_one_worker() -> None:
    """Each other test by itself."""
    shared = "tests/crash/test_crash_points.py"
    assert {unit(f"{shared}::test_a"), unit(f"{shared}::test_b[1]")} == {shared}
    assert unit("tests/crash/test_stop.py::test_a[1]") == "tests/crash/test_stop.py::test_a[1]"


def test_tests_that_import_litellm_go_to_one_worker() -> None:
    """Whichever file they are in; the others of the file go their own ways."""
    turn = "tests/worker/mcp/test_turn.py::test_a"
    assert unit("tests/worker/llm/test_litellm_client.py::test_a[1]") == unit(f"{turn}[litellm]") == "LiteLLM"
    assert unit(f"{turn}[direct]") == f"{turn}[direct]"


def test_the_recorded_durations_are_of_files_that_exist() -> None:
    """`make test-all` writes them."""
    assert [path for path in durations.read() if not (ROOT / path).is_file()] == []
