"""The workspace of a forgotten session: all of it goes, nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from shared.errors import ToolFailed
from shared.ids import folder_name
from worker.guards.folder import Quota
from worker.guards.openat import DEPTH_LIMIT
from worker.guards.threads import FileThreads
from worker.guards.workspace import Workspace, Workspaces

SESSION = "web:ada/main"
FOLDER = folder_name(SESSION)
LATER_S = 60.0


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Workspaces]:
    made = Workspaces(tmp_path / "volume")
    yield made
    made.close()


async def filled(spaces: Workspaces) -> Workspace:
    """Files that tools and commands may leave."""
    workspace = spaces.workspace_of(SESSION)
    for path in ("a.txt", "inside/deep/b.txt", "results/1-c1.txt"):
        await workspace.write_file(path, b"mine")
    at = workspace.path
    (at / ".hidden").write_text("mine")
    os.mkfifo(at / "pipe")
    (at / "closed").mkdir()
    (at / "closed" / "c.txt").write_text("mine")
    (at / "closed").chmod(0o000)
    below = at
    for _ in range(DEPTH_LIMIT + 5):
        below /= "d"
        below.mkdir()
    (below / "e.txt").write_text("mine")
    return workspace


async def test_everything_of_a_forgotten_session_goes_and_nothing_of_others(spaces: Workspaces, tmp_path: Path) -> None:
    """Links are taken away, not followed; what is closed or too deep goes, too; a second time does nothing."""
    workspace = await filled(spaces)
    other = spaces.workspace_of("web:eve/main")
    await other.write_file("a.txt", b"hers")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    (workspace.path / "link").symlink_to(outside)
    (workspace.path / "inside" / "up").symlink_to(other.path)
    os.link(outside / "secret", workspace.path / "second-name")
    assert await spaces.erase_session(FOLDER, before_s=time.time() + LATER_S) > 8
    assert not workspace.path.exists()
    assert {path.name for path in workspace.path.parent.iterdir()} == {other.path.name, f"{other.path.name}.lock"}
    assert (outside / "secret").read_text() == "kept"
    assert await other.read_file("a.txt") == b"hers"
    assert await spaces.erase_session(FOLDER, before_s=time.time() + LATER_S) == 0
    await workspace.write_file("a.txt", b"new")
    assert await workspace.read_file("a.txt") == b"new"


async def test_what_changed_later_stays(spaces: Workspaces) -> None:
    """The job may come late; the clock is that of the disk, which no command can set."""
    workspace = spaces.workspace_of(SESSION)
    await workspace.write_file("old/a.txt", b"old")
    await workspace.write_file("both/a.txt", b"old")
    os.utime(workspace.path / "old" / "a.txt", (time.time() + LATER_S,) * 2)
    asked_s = await changed_s(workspace.path / "old" / "a.txt")
    await workspace.write_file("both/b.txt", b"new")
    os.utime(workspace.path / "both" / "b.txt", (0, 0))
    assert await spaces.erase_session(FOLDER, before_s=asked_s) == 3
    assert {entry.path for entry in await workspace.list_entries()} == {"both/", "both/b.txt"}


async def changed_s(path: Path) -> float:
    """A time behind the change of a file and before whatever comes next, by the clock of the disk."""
    probe = path.parent.parent.parent / "clock"
    before = path.stat().st_ctime_ns
    while True:
        probe.write_text("")
        if (now := probe.stat().st_ctime_ns) > before:
            probe.unlink()
            return (before + now) / 2 / 1_000_000_000
        await asyncio.sleep(0)


async def test_a_link_swapped_in_leads_nowhere(spaces: Workspaces, tmp_path: Path) -> None:
    """Somebody swaps a folder for a link to another one again and again while all is deleted."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("kept")
    workspace = spaces.workspace_of(SESSION)
    over = threading.Event()

    def swap() -> None:
        at = workspace.path / "swapped"
        steps: list[Callable[[], None]] = [at.mkdir, at.rmdir, partial(at.symlink_to, outside), at.unlink]
        while not over.is_set():
            for step in steps:
                with contextlib.suppress(OSError):
                    step()

    await workspace.write_file("a.txt", b"mine")
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            await workspace.write_file("a.txt", b"mine")
            try:
                await spaces.erase_session(FOLDER, before_s=time.time() + LATER_S)
            except (OSError, ToolFailed):
                continue  # it was in the way: the job comes again
    finally:
        over.set()
        thread.join()
    assert (outside / "a.txt").read_text() == "kept"


async def test_a_write_beside_it_is_whole_or_comes_after(spaces: Workspaces) -> None:
    """The folder goes under the lock of writers: a write finds it there or makes it anew, and none fails."""
    workspace = spaces.workspace_of(SESSION)

    async def write(n: int) -> None:
        for _ in range(20):
            await workspace.write_file(f"{n}.txt", b"x")

    async def forget() -> None:
        for _ in range(20):
            await spaces.erase_session(FOLDER, before_s=time.time() + LATER_S)

    await asyncio.gather(*(write(n) for n in range(4)), forget())


async def test_a_volume_without_an_answer_fails_and_is_done_again(tmp_path: Path) -> None:
    """A fault, or no answer in time; the job then asks for another time."""
    threads = FileThreads(limit_s=0.0)
    slow = Workspaces(tmp_path, Quota(), threads=threads)
    await Workspaces(tmp_path).workspace_of(SESSION).write_file("a.txt", b"mine")
    with pytest.raises(ToolFailed):
        await slow.erase_session(FOLDER, before_s=time.time() + LATER_S)
    slow.close()
    again = Workspaces(tmp_path)
    await again.erase_session(FOLDER, before_s=time.time() + LATER_S)
    assert not again.workspace_of(SESSION).path.exists()
    again.close()


async def test_only_the_folder_of_a_session_can_be_named(spaces: Workspaces) -> None:
    """A job's argument comes out of Redis."""
    for name in ("", "..", "a/b", f"{FOLDER}/..", FOLDER.upper()):
        with pytest.raises(ValueError, match="not the folder of a session"):
            await spaces.erase_session(name, before_s=0)
