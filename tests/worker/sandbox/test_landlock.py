"""The file system under Landlock, tried by a process that confined itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.confinement import landlock
from tests.helpers.need import need

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, signal, socket, sys
from shared.confinement import landlock
inside, outside, shown, parent = sys.argv[1:5]
version = landlock.confine(
    read=["/usr", "/lib", "/lib64", shown, "/not/there"], write=[inside], devices=["/dev/null"]
)
def tried(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
        return "done"
    except OSError as exc:
        return type(exc).__name__
def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)
def bind():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
def abstract():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(sys.argv[5].replace("@", chr(0)))
os.chdir(inside)
print(json.dumps({
    "version": version,
    "write inside": tried(write, "a/new"),
    "read inside": tried(open, "old"),
    "list inside": tried(os.listdir, "."),
    "make a folder": tried(os.mkdir, "b"),
    "move between folders": tried(os.rename, "old", "b/old"),
    "make a link": tried(os.symlink, outside, "link"),
    "make a pipe": tried(os.mkfifo, "pipe"),
    "write to nothing": tried(write, "/dev/null"),
    "read what is shown": tried(open, shown + "/file"),
    "write what is shown": tried(write, shown + "/file"),
    "read outside": tried(open, outside + "/file"),
    "read outside by a link": tried(open, "link/file"),
    "list outside": tried(os.listdir, outside),
    "write outside": tried(write, outside + "/new"),
    "cut outside": tried(os.truncate, outside + "/file", 0),
    "remove outside": tried(os.unlink, outside + "/file"),
    "move outside": tried(os.rename, "a/new", outside + "/new"),
    "move inside": tried(os.rename, outside + "/file", "stolen"),
    "link inside": tried(os.link, outside + "/file", "stolen"),
    "list processes": tried(os.listdir, "/proc"),
    "make a device": tried(os.mknod, "disk", 0o60600, os.makedev(7, 0)),
    "bind a port": tried(bind),
    "signal the parent": tried(os.kill, int(parent), 0),
    "abstract socket": tried(abstract),
}))
"""

INSIDE = {
    *("write inside", "read inside", "list inside", "make a folder", "move between folders", "make a link"),
    *("make a pipe", "write to nothing", "read what is shown"),
}
SINCE = {"bind a port": 4, "signal the parent": landlock.SIGNALS_ABI, "abstract socket": landlock.SIGNALS_ABI}


@pytest.fixture
def outcomes(tmp_path: Path) -> dict[str, Any]:
    """Return what a confined process could do."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    inside, outside, shown = (tmp_path / name for name in ("inside", "outside", "shown"))
    for folder in (inside / "a", outside, shown):
        folder.mkdir(parents=True)
    for file in (inside / "old", outside / "file", shown / "file"):
        file.write_text("canary")
    with socket.socket(socket.AF_UNIX) as listening:
        name = f"shoal-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.listen()
        words = [sys.executable, "-c", SCRIPT, *map(str, (inside, outside, shown, os.getpid())), f"@{name}"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (outside / "file").read_text() == (shown / "file").read_text() == "canary"
    assert os.listdir(outside) == ["file"]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_everything_is_allowed_inside_and_nothing_outside(outcomes: dict[str, Any]) -> None:
    """Also for root: reading, listing, changing, cutting, moving and linking what was not named is refused."""
    version = outcomes.pop("version")
    assert version == landlock.abi()
    for what, outcome in outcomes.items():
        if what in INSIDE:
            assert outcome == "done", what
        elif version >= SINCE.get(what, 0):
            assert outcome in ("PermissionError", "OSError"), what


def test_a_kernel_that_is_too_old_is_refused() -> None:
    """Fail closed: half a border is none."""
    with pytest.raises(landlock.NoLandlock, match="999 is needed"):
        landlock.confine(read=(), write=(), needed_abi=999)
    with open("/etc/passwd", "rb") as file:  # and this process is as free as before
        assert file.read()


def test_a_folder_to_change_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A missing path in `read` is skipped; in `write` it would be a command without a workspace."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    script = "import sys\nfrom shared.confinement import landlock\nlandlock.confine(read=(), write=[sys.argv[1]])"
    words = [sys.executable, "-c", script, str(tmp_path / "missing")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr
