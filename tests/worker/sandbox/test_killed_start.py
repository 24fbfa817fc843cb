"""A worker that is killed while a command starts: bubblewrap ends, and the command never runs."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.helpers.wait import eventually
from tests.worker.sandbox.conftest import tier
from worker.sandbox.bubblewrap import find_programs

ROOT: Final = Path(__file__).parents[3]
SLOW_S: Final = 30.0

WORKER: Final = """
import asyncio, contextlib, os, signal, sys
from pathlib import Path
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import SandboxCommand
from worker.sandbox.layout import BubblewrapProgram

def waits_for_its_parent(first):
    links = Path(f"/proc/{first}/fd")
    found = 0
    for link in links.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(link) == "anon_inode:[eventfd]"
    return found > 1

class Group:
    def add(self, first):
        # bubblewrap tells the pid a moment before it lets that process go on.
        while waits_for_its_parent(first):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    def remove(self):
        pass

class Groups:
    def create(self, limits):
        return Group()

async def main():
    how, program, folder, proc = sys.argv[1:]
    sandbox = Bubblewrap(BubblewrapProgram(Path(program)), proc=proc == "proc", switches_uid=False)
    if how == "trial":
        await sandbox.start_empty()
    if how == "gate":
        sandbox._groups = Groups()
    await sandbox.run(SandboxCommand(what="touch ran; exec sleep 1000", folder=folder, session="mine"))

asyncio.run(main())
"""
"""Dies at the gate by itself: it has the pid of the first process then, and has not let it go on."""


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every user reaches."""
    with tempfile.TemporaryDirectory(prefix="shoal-killed-") as top:
        Path(top).chmod(0o755)
        yield Path(top)


def write_program(top: Path, *, waits: bool) -> Path:
    """Write a program that becomes bubblewrap under a name of its own. With `waits` it does so when its parent, the
    worker, has ended."""
    (top / "marked-bwrap").symlink_to(next(iter(find_programs())).path)
    started = top / "started"
    started.touch()
    started.chmod(0o666)
    wait = "while [ -d /proc/$PPID ]; do :; done" if waits else ""
    program = top / "program"
    program.write_text(
        f'#!/bin/sh\necho $$ >{shlex.quote(str(started))}\n{wait}\nexec {shlex.quote(str(top / "marked-bwrap"))} "$@"\n'
    )
    program.chmod(0o755)
    return program


def left(top: Path) -> list[int]:
    """Return the first process that was started, then all whose command line names the folder."""
    first = int((top / "started").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(first).status() != psutil.STATUS_ZOMBIE:
            return [first]
    # Only now: one that it has started since would not be in an older list.
    found = psutil.process_iter(["cmdline"])
    return [one.pid for one in found if any(str(top) in word for word in one.info["cmdline"] or [])]


@pytest.mark.parametrize("how", ["trial", "command", "gate"])
async def test_a_worker_killed_while_a_command_starts_leaves_nothing_behind(how: str, opened: Path) -> None:
    """SIGKILL before bubblewrap has told the pid of its first process, or while that one waits at the gate: all of it
    ends, and nothing of the command has run."""
    sandbox = await tier("bubblewrap")
    folder = opened / "workspace"
    folder.mkdir()
    program = write_program(opened, waits=how != "gate")
    proc = "proc" if getattr(sandbox, "_proc", True) else "none"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, how, str(program), str(folder), proc], cwd=ROOT)
    try:
        if how != "gate":
            await eventually(lambda: (opened / "started").read_text().endswith("\n"), SLOW_S, what="the start")
            worker.kill()
    finally:
        worker.wait(SLOW_S)
    try:
        await eventually(lambda: not left(opened), SLOW_S, what=lambda: f"the end of {left(opened)}")
        assert [path.name for path in folder.iterdir()] == []
    finally:
        for pid in left(opened):
            psutil.Process(pid).kill()
