"""Which tests a change can reach."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from tools.changed import changed_files, channels_of, files_to_run, reached
from tools.house.files import Source

GRAPH = {
    "worker/a.py": set[str](),
    "worker/b.py": {"worker/a.py"},
    "tests/worker/test_b.py": {"worker/b.py"},
    "tests/worker/test_other.py": set[str](),
    "tests/crash/test_far.py": {"worker/b.py"},
    "tests/crash/test_near.py": {"worker/a.py"},
}


def source(path: str, text: str) -> Source:
    """A file with this text."""
    return Source(PurePosixPath(path), text.encode())


def test_a_fast_test_is_reached_through_imports_and_one_of_processes_directly() -> None:
    """What a process does is not seen in the imports of its test."""
    found = reached(["worker/a.py"], GRAPH, [])
    assert found == {
        "worker/a.py": 0,
        "worker/b.py": 1,
        "tests/crash/test_near.py": 1,
        "tests/worker/test_b.py": 2,
        "tests/crash/test_far.py": 2,
    }
    assert files_to_run(found) == (["tests/worker/test_b.py"], ["tests/crash/test_near.py"])


def test_a_circle_of_imports_ends() -> None:
    """Each file is reached once."""
    assert reached(["a.py"], {"a.py": {"b.py"}, "b.py": {"a.py"}}, []) == {"a.py": 0, "b.py": 1}


def test_a_script_or_a_page_is_reached_through_who_says_its_name() -> None:
    """Lua by its folder, everything else by its file's name."""
    texts = [source("worker/b.py", 'run("turns/step")'), source("tests/worker/test_other.py", '"/web/page.css"')]
    assert reached(["shared/store/lua/turns/step.lua"], GRAPH, texts)["tests/worker/test_b.py"] == 1
    assert [*reached(["gateway/static/page.css"], GRAPH, texts)] == ["tests/worker/test_other.py"]
    assert reached(["docs/nobody.md"], GRAPH, texts) == {}


def test_a_touched_channel_brings_its_contracts() -> None:
    """Its folder has its name; a file beside the folders is no channel."""
    assert channels_of(["gateway/channels/slack/api.py", "gateway/channels/shared.py", "worker/a.py"]) == {"slack"}


def test_the_change_is_what_differs_from_the_branch_and_what_is_new(tmp_path: Path) -> None:
    """Committed, not committed, and not known to git."""

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("same.py", "edited.py"):
        (tmp_path / name).touch()
    git("add", ".")
    git("commit", "-m", "Begin")
    git("switch", "-c", "work")
    (tmp_path / "committed.py").touch()
    git("add", ".")
    git("commit", "-m", "Go on")
    (tmp_path / "edited.py").write_text("pass\n")
    (tmp_path / "new.py").touch()
    assert changed_files(tmp_path, "main") == ["committed.py", "edited.py", "new.py"]
