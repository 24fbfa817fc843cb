"""The workspace of a session: nothing outside is read or written, nothing hangs, the quota holds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import ToolFailed
from worker.guards.folder import Quota
from worker.guards.threads import FileThreads, StopSignal
from worker.guards.workspace import WRITE_LIMIT_BYTES, Workspace, Workspaces

CANARY = "canary"
SESSION = "web:ada/main"
HANG_S = 60.0


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Workspaces]:
    made = Workspaces(tmp_path / "volume")
    yield made
    made.close()


@pytest.fixture
async def workspace(spaces: Workspaces) -> Workspace:
    """One that exists, with a file and a folder in it, beside others and a secret."""
    made = spaces.workspace_of(SESSION)
    await made.write_file("inside/a.txt", b"mine")
    await spaces.workspace_of("web:eve/main").write_file("a.txt", CANARY.encode())
    made.path.with_name(made.path.name + "x").mkdir()
    (made.path.with_name(made.path.name + "x") / "a.txt").write_text(CANARY)
    (made.path.parent.parent / "secret").mkdir()
    (made.path.parent.parent / "secret" / "a.txt").write_text(CANARY)
    return made


def secret_of(workspace: Workspace) -> Path:
    return workspace.path.parent.parent / "secret" / "a.txt"


def odd_files(workspace: Workspace) -> dict[str, str]:
    """Files that commands may leave in a workspace, by path, with the text about each."""
    at, secret = workspace.path, secret_of(workspace)
    (at / "link").symlink_to(secret)
    (at / "relative").symlink_to(f"../../secret/{secret.name}")
    (at / "parent").symlink_to(secret.parent)
    (at / "self").symlink_to("self")
    (at / "dangling").symlink_to(at.parent / "new")
    (at / "inner").symlink_to("inside/a.txt")
    (at / "proc").symlink_to("/proc/self/root")
    os.link(secret, at / "hard")
    os.mkfifo(at / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(at)  # the path of a socket may have 107 bytes
        listener.bind("socket")
        os.chdir(here)
    odd = dict.fromkeys(["link", "relative", "self", "dangling", "inner", "hard"], "lead outside the workspace")
    odd |= dict.fromkeys(["parent/a.txt", "parent/new/deep.txt", "proc/etc/hostname"], "lead outside the workspace")
    odd |= dict.fromkeys(["fifo", "socket"], "not a plain file")
    odd |= {"inside": "is a folder", "inside/a.txt/deeper": "leads through a file"}
    if os.geteuid() == 0 and hasattr(os, "makedev"):
        try:
            os.mknod(at / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            odd["device"] = "not a plain file"
        except PermissionError:
            pass  # a container that may make none
    return odd


async def test_odd_files_are_neither_read_nor_written_and_nothing_waits(workspace: Workspace) -> None:
    """Links of every kind, hard links, FIFOs, sockets, devices, folders in place of files: security row 6."""
    for path, says in odd_files(workspace).items():
        async with asyncio.timeout(HANG_S):
            for attempt in (
                workspace.read_file(path),
                workspace.write_file(path, b"x"),
                workspace.write_file(path, b"x", was=b"mine"),
            ):
                with pytest.raises(ToolFailed) as raised:
                    await attempt
                assert says in str(raised.value), path
                assert repr(path) in str(raised.value)
                assert str(workspace.path.parent) not in str(raised.value)
                assert CANARY not in str(raised.value)
    assert secret_of(workspace).read_text() == CANARY
    assert sorted(os.listdir(secret_of(workspace).parent)) == ["a.txt"]
    assert not (workspace.path.parent / "new").exists()


async def test_odd_files_are_not_listed(workspace: Workspace) -> None:
    """Nor hidden ones, nor names that could be read as something else; folders are, also empty ones."""
    odd_files(workspace)
    (workspace.path / ".hidden").mkdir()
    (workspace.path / ".hidden" / "x").touch()
    (workspace.path / "a\nb").touch()
    os.close(os.open(os.fsencode(workspace.path) + b"/\xff", os.O_CREAT))
    (workspace.path / "empty").mkdir()
    paths = sorted(entry.path for entry in await workspace.list_entries())
    assert paths == ["empty/", "inside/", "inside/a.txt"]


@pytest.mark.parametrize(
    "path", ["../secret/a.txt", "inside/../../x", "/etc/passwd", "~/x", "a\0b", "..\\x", "C:\\x", "\uff0e\uff0e/x"]
)
async def test_paths_that_lead_out_are_refused_before_anything_is_opened(workspace: Workspace, path: str) -> None:
    """The whole corpus is in test_paths; both ways in use it. So is the folder whose name only begins alike."""
    for attempt in (workspace.read_file(path), workspace.write_file(path, b"x")):
        with pytest.raises(ToolFailed, match="outside the workspace"):
            await attempt
    for sibling in (f"../{workspace.path.name}x/a.txt", str(workspace.path / "inside" / "a.txt")):
        with pytest.raises(ToolFailed, match="outside the workspace"):
            await workspace.read_file(sibling)


async def test_a_link_swapped_in_at_any_moment_leads_nowhere(workspace: Workspace) -> None:
    """10,000 tries while threads put a file, and a folder, and links to a secret in turn in the same places."""
    at, secret = workspace.path, secret_of(workspace)
    (at / "folder").mkdir()
    (at / "folder" / "a.txt").write_text("mine")
    (at / "file").write_text("mine")
    over = threading.Event()

    def swap_file() -> None:
        while not over.is_set():
            (at / "next").symlink_to(secret)
            os.replace(at / "next", at / "leaf")
            (at / "next").write_text("mine")
            os.replace(at / "next", at / "leaf")

    def swap_folder() -> None:
        while not over.is_set():
            (at / "swap").symlink_to(secret.parent)
            with contextlib.suppress(OSError):  # a writer has made a folder there
                os.rename(at / "folder", at / "turn")
                os.rename(at / "turn", at / "folder")
                os.rename(at / "swap", at / "turn")
                os.unlink(at / "turn")
            (at / "swap").unlink(missing_ok=True)
            if (at / "turn").is_dir():
                shutil.rmtree(at / "turn", ignore_errors=True)

    swappers = [threading.Thread(target=swap) for swap in (swap_file, swap_folder)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for swapper in swappers:
        swapper.start()
    got: list[str] = []
    links = 0
    try:
        folder, stop = workspace._folder, StopSignal()
        for n in range(5000):
            for parts in (("turn", "a.txt"), ("leaf",)):
                try:
                    got.append(folder.read_file(stop, parts, 100).decode())
                    if n % 5 == 0:
                        folder.write_file(stop, parts, b"mine", None)
                except OSError as exc:
                    links += getattr(exc, "outside", False) or exc.errno == errno.ELOOP
    finally:
        over.set()
        for swapper in swappers:
            swapper.join()
        sys.setswitchinterval(before)
    assert set(got) == {"mine"}
    assert min(links, len(got)) > 10, "the swaps did not meet the tries"
    assert secret.read_text() == CANARY
    assert os.listdir(secret.parent) == ["a.txt"]


async def test_a_file_is_the_old_one_or_the_new_one_and_ours_alone(workspace: Workspace) -> None:
    """Readers beside a writer see no part of a file; folders are 0700, files 0600, and a program stays one."""
    old, new = b"a" * 300_000, b"b" * 300_000
    await workspace.write_file("big", old)

    async def rewrite() -> None:
        for n in range(20):
            await workspace.write_file("big", (new, old)[n % 2])

    async def read() -> set[bytes]:
        return {await workspace.read_file("big") for _ in range(40)}

    seen, _ = await asyncio.gather(read(), rewrite())
    assert seen <= {old, new}
    assert stat.S_IMODE(workspace.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((workspace.path / "inside").stat().st_mode) == 0o700
    assert stat.S_IMODE((workspace.path / "big").stat().st_mode) == 0o600
    (workspace.path / "big").chmod(0o755)
    await workspace.write_file("big", b"#!/bin/sh")
    assert stat.S_IMODE((workspace.path / "big").stat().st_mode) == 0o700


async def test_a_change_is_made_to_what_was_read_or_not_at_all(workspace: Workspace) -> None:
    """A second attempt at the same change is no error: its hash would be that of the result."""
    await workspace.write_file("inside/a.txt", b"new", was=b"mine")
    await workspace.write_file("inside/a.txt", b"new", was=b"mine")
    for path in ("inside/a.txt", "inside/none.txt"):
        with pytest.raises(ToolFailed, match="not as you read it any more; read it again"):
            await workspace.write_file(path, b"other", was=b"mine")
    assert await workspace.read_file("inside/a.txt") == b"new"


async def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    """A chat without files costs no folder; reading in none is a plain answer."""
    spaces = Workspaces(tmp_path / "volume")
    workspace = spaces.workspace_of(SESSION)
    assert await workspace.list_entries() == []
    with pytest.raises(ToolFailed, match="there is no file 'a'"):
        await workspace.read_file("a")
    assert await workspace.run_in_folder(lambda path: path.exists()) is False
    assert list(tmp_path.iterdir()) == []
    assert (await workspace.create()).is_dir()
    spaces.close()


async def test_a_volume_that_is_away_is_a_text_without_its_path(tmp_path: Path) -> None:
    """Here its root is a file."""
    (tmp_path / "volume").touch()
    spaces = Workspaces(tmp_path / "volume")
    for attempt in (
        spaces.workspace_of(SESSION).write_file("a", b"x"),
        spaces.workspace_of(SESSION).list_entries(),
        spaces.workspace_of(SESSION).read_file("a"),
    ):
        with pytest.raises(ToolFailed) as raised:
            await attempt
        assert str(tmp_path) not in str(raised.value)
    spaces.close()


@pytest.mark.parametrize("path", ["", ".", "new/", "new/."])
async def test_a_folder_is_not_written_as_a_file(workspace: Workspace, path: str) -> None:
    """The model is results to name a file."""
    with pytest.raises(ToolFailed, match="name the file to write"):
        await workspace.write_file(path, b"x")


async def test_sizes_have_limits(workspace: Workspace) -> None:
    """Both for reading and for writing."""
    with pytest.raises(ToolFailed, match=f"at most {WRITE_LIMIT_BYTES:,} can be written"):
        await workspace.write_file("a", b"x" * (WRITE_LIMIT_BYTES + 1))
    (workspace.path / "sparse").touch()
    os.truncate(workspace.path / "sparse", 2**40)
    with pytest.raises(ToolFailed, match=r"has 1,099,511,627,776 bytes; only files of up to 16,777,216"):
        await workspace.read_file("sparse")


async def test_the_quota_holds_under_concurrent_writes_of_several_workers(tmp_path: Path) -> None:
    """40 writers of 1,000 bytes each into 10,000: ten get in, whoever they are; the others are results both numbers."""
    workers = [Workspaces(tmp_path, Quota(size_bytes=10_000)) for _ in range(4)]
    writes = [workers[n % 4].workspace_of(SESSION).write_file(f"f{n}", b"x" * 1000) for n in range(40)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    refused = [error for error in results if error is not None]
    assert len(refused) == 30
    for error in refused:
        assert isinstance(error, ToolFailed)
        assert "would have 11,000 bytes; at most 10,000 are allowed" in str(error)
    folder = workers[0].workspace_of(SESSION).path
    assert sum(path.stat().st_size for path in folder.iterdir()) == 10_000
    await (
        workers[0].workspace_of(SESSION).write_file(next(folder.iterdir()).name, b"y" * 1000)
    )  # a file that is there may change
    for worker in workers:
        worker.close()


async def test_the_number_of_files_and_folders_is_limited_too(tmp_path: Path) -> None:
    """A refused write leaves no folder."""
    spaces = Workspaces(tmp_path, Quota(files=4))
    workspace = spaces.workspace_of(SESSION)
    await workspace.write_file("a/b/c", b"")
    with pytest.raises(ToolFailed, match="would have 5 files and folders; at most 4 are allowed"):
        await workspace.write_file("d/e", b"")
    assert sorted(os.listdir(workspace.path)) == ["a"]
    await workspace.write_file("a/d", b"")
    await workspace.write_file("a/d", b"again")
    spaces.close()


async def test_results_make_room_by_age_and_for_others(tmp_path: Path) -> None:
    """Kept results of tools go after their time, and the oldest first when room is short; own files never go."""
    spaces = Workspaces(tmp_path, Quota(size_bytes=5000, results_s=100))
    workspace = spaces.workspace_of(SESSION)
    await workspace.write_file("mine", b"x" * 1000)
    now = time.time()
    for age_s in (500, 90, 50, 10):
        await workspace.write_file(f"results/{age_s}.txt", b"x" * 1000)
        os.utime(workspace.path / "results" / f"{age_s}.txt", (now - age_s, now - age_s))
    os.utime(workspace.path / "mine", (1, 1))
    await workspace.write_file("other", b"")
    assert sorted(os.listdir(workspace.path / "results")) == ["10.txt", "50.txt", "90.txt"]
    await workspace.write_file("results/new.txt", b"x" * 2000)
    assert sorted(os.listdir(workspace.path / "results")) == ["10.txt", "50.txt", "new.txt"]
    with pytest.raises(ToolFailed, match="at most 5,000 are allowed"):
        await workspace.write_file("other", b"x" * 4001)
    assert await workspace.read_file("mine") == b"x" * 1000
    spaces.close()


async def test_what_a_lost_worker_left_half_written_is_swept(workspace: Workspace) -> None:
    """It is hidden, and goes after an hour."""
    left = [workspace.path / name for name in (".shoal-1.part", ".shoal-2.part")]
    for path in left:
        path.write_bytes(b"x")
    os.utime(left[0], (1, 1))
    await workspace.write_file("a", b"x")
    assert [path.exists() for path in left] == [False, True]


async def test_a_dead_volume_harms_only_those_who_ask_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is over in its time, the event loop turns meanwhile, and a stuck thread keeps no file from changing."""
    monkeypatch.setattr("worker.guards.threads.GRACE_S", 0.1)
    release = threading.Event()
    threads = FileThreads(1, limit_s=0.3)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.005)

    beating = asyncio.create_task(beat())
    changed = threading.Event()

    def stuck(stop: StopSignal) -> None:
        release.wait(HANG_S)
        stop.check()
        changed.set()

    with pytest.raises(ToolFailed, match=re.escape("did not answer within 0.3 s")):
        await threads.run(stuck)
    assert beats > 5
    release.set()
    threads.close()
    beating.cancel()
    await asyncio.to_thread(threads._pool.shutdown)
    assert not changed.is_set()


async def test_a_cancelled_call_leaves_no_thread_at_work(workspace: Workspace) -> None:
    """When the cancellation is through, its work has ended: nothing is written after a lease is lost."""
    threads = FileThreads(2)
    running, ended = threading.Event(), threading.Event()

    def long(stop: StopSignal) -> None:
        running.set()
        try:
            while True:
                stop.wait(0.001)
        finally:
            ended.set()

    task = asyncio.create_task(threads.run(long))
    await asyncio.to_thread(running.wait, HANG_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    threads.close()


async def test_many_calls_of_one_session_do_not_keep_others_waiting(spaces: Workspaces) -> None:
    """A session has two threads at most, so six are left."""
    release = threading.Event()
    greedy = spaces.workspace_of("web:greedy/main")
    calls = [asyncio.create_task(greedy.run_in_folder(lambda _: release.wait(HANG_S))) for _ in range(50)]
    async with asyncio.timeout(HANG_S / 2):
        await spaces.workspace_of(SESSION).write_file("a", b"x")
    release.set()
    assert all(await asyncio.gather(*calls))
