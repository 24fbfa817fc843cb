"""Workspaces that a runner of another user may use, by a group."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.runner import AS_ROOT, GROUP
from worker.guards.folder import Quota, SessionFolder
from worker.guards.openat import OWNER_ONLY, Access
from worker.guards.threads import StopSignal

OWN_GROUP = GROUP if AS_ROOT else os.getgid()


@pytest.fixture(autouse=True, params=[0o077, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of the process does not matter."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def folder(root: Path, access: Access) -> SessionFolder:
    return SessionFolder(root, "session", Quota(), access)


def test_without_a_group_they_are_for_their_user_alone(tmp_path: Path) -> None:
    """The default: one user runs all."""
    made = folder(tmp_path / "root", OWNER_ONLY)
    made.write_file(StopSignal(), ("a", "b"), b"text", None)
    assert [mode(made.path.parent), mode(made.path), mode(made.path / "a")] == [0o700] * 3
    assert mode(made.path / "a" / "b") == 0o600


def test_with_a_group_folders_are_2770_and_files_660(tmp_path: Path) -> None:
    """And the group goes down with them: what either side makes is for the other, too."""
    made = folder(tmp_path / "root", Access(OWN_GROUP))
    made.write_file(StopSignal(), ("a", "b", "c"), b"text", None)
    folders = [made.path.parent, made.path, made.path / "a", made.path / "a" / "b"]
    assert [mode(path) for path in folders] == [0o2770] * 4
    assert mode(made.path / "a" / "b" / "c") == 0o660
    assert {path.stat().st_gid for path in (*folders, made.path / "a" / "b" / "c")} == {OWN_GROUP}
    assert mode(made.path.parent / "session.lock") == 0o600


def test_a_file_that_may_be_run_stays_one(tmp_path: Path) -> None:
    """For both, and for nobody else."""
    made = folder(tmp_path / "root", Access(OWN_GROUP))
    made.write_file(StopSignal(), ("run",), b"#!/bin/sh", None)
    (made.path / "run").chmod(0o777)
    made.write_file(StopSignal(), ("run",), b"#!/bin/sh\n", None)
    assert mode(made.path / "run") == 0o770


def test_a_workspace_from_before_there_was_a_group_is_opened_to_it(tmp_path: Path) -> None:
    """By the next write, or when a command is about to run in it."""
    folder(tmp_path / "root", OWNER_ONLY).create(StopSignal())
    made = folder(tmp_path / "root", Access(OWN_GROUP))
    made.create(StopSignal())
    assert [mode(made.path.parent), mode(made.path)] == [0o2770] * 2


@pytest.mark.skipif(not AS_ROOT, reason="this check needs root: it is two users")
def test_each_side_changes_what_the_other_wrote(tmp_path: Path) -> None:
    """A worker's file in a command, a command's file in the worker; and others of the machine see neither."""
    made = folder(tmp_path / "root", Access(GROUP))
    made.write_file(StopSignal(), ("notes", "theirs"), b"by the worker", None)
    for at in (tmp_path, *list(tmp_path.parents)[:-1]):
        assert at.stat().st_uid == 0
    handle = os.open(made.path, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:  # the other user; it is in by the handle, as the way to a test's folder is root's alone
        try:
            os.fchdir(handle)
            os.setgroups([GROUP])
            os.setresgid(1001, 1001, 1001)
            os.setresuid(1001, 1001, 1001)
            os.umask(0o007)
            with open("notes/theirs", "a") as file:
                file.write(", and by the command")
            os.mkdir("made")
            with open("made/ours", "w") as file:
                file.write("by the command")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(handle)
    assert made.read_file(StopSignal(), ("notes", "theirs"), 100) == b"by the worker, and by the command"
    assert (made.path / "made").stat().st_gid == (made.path / "made" / "ours").stat().st_gid == GROUP
    assert [mode(made.path / "made"), mode(made.path / "made" / "ours")] == [0o2770, 0o660]
