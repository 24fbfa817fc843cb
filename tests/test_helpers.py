from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.helpers import kinds
from tests.helpers.need import need
from tests.helpers.wait import eventually, eventually_sync

ROOT: Final = Path(__file__).parents[1]


async def test_eventually_returns_what_the_check_gave_once_it_is_true() -> None:
    """Plain and async checks, and checks that assert."""
    answers = iter([0, 0, 7])
    assert await eventually(lambda: next(answers)) == 7
    later = iter([None, "x"])

    async def ask() -> str | None:
        return next(later)

    assert await eventually(ask) == "x"
    tries = iter([1, 2, 3])

    def asserting() -> bool:
        assert next(tries) == 3
        return True

    assert await eventually(asserting)


def test_eventually_gives_up_with_the_last_value() -> None:
    """A wait that fails says what it saw."""
    with pytest.raises(AssertionError, match=r"the lamp did not hold within 0\.05 s; last: 'dark'"):
        eventually_sync(lambda: "" or _falsy("dark"), within_s=0.05, what="the lamp")


class _falsy(str):
    """Text that counts as not yet."""

    def __bool__(self) -> bool:
        return False


def test_a_missing_program_is_a_skip_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a failure on the machine that must check everything."""
    need("sh")
    monkeypatch.delenv("SHOAL_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"needs 'no-such-program': .*apt-get install no-such-program"):
        need("no-such-program")
    monkeypatch.setenv("SHOAL_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match=r"SHOAL_REQUIRE_ALL=1, and this check needs 'browser': get one"):
        need("browser", install="get one", found=False)


@pytest.mark.parametrize(
    ("path", "fast", "long"),
    [
        ("tests/test_helpers.py", True, False),
        ("tests/crash/test_stop.py", False, True),
        ("tests/console/test_console.py", True, True),
        ("tests/shared/store/test_state_machine.py", False, True),
    ],
)
def test_a_run_imports_the_files_that_have_tests_for_it(path: str, fast: bool, long: bool) -> None:
    """And all of them, when its markers are others."""
    assert kinds.needless(kinds.FAST, path) is not fast
    assert kinds.needless(kinds.LONG, path) is not long
    assert not kinds.needless("", path)
    assert not kinds.needless("slow", path)


def test_a_file_that_marks_its_tests_is_listed() -> None:
    """Else neither `make test` nor `make test-all` would run them."""
    marks = re.compile(r"^\s*@?pytest\.mark\.(slow|process)\b", re.MULTILINE)
    files = [file for folder in ("tests", "proof") for file in (ROOT / folder).rglob("test_*.py")]
    paths = [file.relative_to(ROOT).as_posix() for file in files if marks.search(file.read_text())]
    assert paths
    assert [path for path in paths if kinds.needless(kinds.LONG, path)] == []
