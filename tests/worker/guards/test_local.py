"""Only a disk of this machine may be asked on the event loop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.guards.folder import Quota, SessionFolder
from worker.guards.threads import FileThreads
from worker.guards.workspace import Workspace, Workspaces, file_system, is_local

SESSION = "web:ada/main"
MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 27 0:40 / /srv/with\\040space rw master:1 propagate_from:2 - nfs4 files:/export rw,vers=4.2
31 27 0:41 / /data rw - fuse.sshfs me@files: rw
odd line
"""


@pytest.mark.parametrize(
    ("device", "kind"),
    [((254, 0), "ext4"), ((0, 40), "nfs4"), ((0, 41), "fuse.sshfs"), ((254, 1), ""), ((0, 4), "")],
)
def test_the_kind_of_a_file_system_is_read_from_the_list_of_mounts(device: tuple[int, int], kind: str) -> None:
    """By the number of the device, whatever optional fields a line has; nothing is guessed."""
    assert file_system(os.makedev(*device), MOUNTS) == kind


def mounts_of(tmp_path: Path, kind: str) -> Path:
    """A list of mounts in which the folder of this test lies on such a file system."""
    device = tmp_path.stat().st_dev
    made = tmp_path / "mounts"
    made.write_text(f"27 1 {os.major(device)}:{os.minor(device)} / / rw shared:1 - {kind} source rw\n")
    return made


@pytest.mark.parametrize(
    ("kind", "local"), [("ext4", True), ("overlay", True), ("nfs4", False), ("ceph", False), ("virtiofs", False)]
)
def test_a_folder_is_local_where_no_other_machine_answers_for_it(tmp_path: Path, kind: str, local: bool) -> None:
    """Also one that is not made yet."""
    mounts = mounts_of(tmp_path, kind)
    assert is_local(tmp_path, mounts) is local
    assert is_local(tmp_path / "not" / "made", mounts) is local


def test_what_is_unknown_is_not_local(tmp_path: Path) -> None:
    """No list of mounts, as on other systems; or a list without this disk."""
    assert not is_local(tmp_path, tmp_path / "none")
    empty = tmp_path / "empty"
    empty.write_text("")
    assert not is_local(tmp_path, empty)


@pytest.mark.parametrize("local", [True, False])
async def test_what_is_missing_is_known_at_once_on_a_local_disk_alone(tmp_path: Path, local: bool) -> None:
    """Nobody else is sure; a folder that is there, or a link in its place, is looked at by a thread."""
    threads = FileThreads(1)
    workspace = Workspace(SessionFolder(tmp_path / "volume", "ada", Quota()), threads, local=local)
    try:
        assert workspace.surely_without("skills") is local
        await workspace.write_file("skills/a/SKILL.md", b"x")
        assert not workspace.surely_without("skills")
        assert workspace.surely_without("other") is local
        (workspace.path / "other").symlink_to("nowhere")
        assert not workspace.surely_without("other")
    finally:
        threads.close()


async def test_it_is_found_out_once_for_all_workspaces(tmp_path: Path) -> None:
    """Until then nothing is sure."""
    spaces = Workspaces(tmp_path / "volume")
    try:
        assert not spaces.workspace_of(SESSION).surely_without("skills")
        await spaces.detect_local_disk()
        assert spaces.workspace_of(SESSION).surely_without("skills") is is_local(tmp_path)
    finally:
        spaces.close()
