"""Control groups of commands: on a made-up tree of them, and on the kernel's where this process has been given one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.helpers.wait import eventually
from tests.worker.sandbox.conftest import tier
from tests.worker.sandbox.test_escapes import ENDED, MIB, SMALL, command
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.cgroup import SUBGROUP, CommandGroups
from worker.sandbox.command import SandboxBroken

SLOW_S = 30.0

pytestmark = pytest.mark.timeout(180)


def tree(top: Path, *, controllers: str = "cpu memory pids", processes: str = "") -> Path:
    """A group as `Delegate=` leaves it."""
    top.mkdir(exist_ok=True)
    (top / "cgroup.controllers").write_text(f"{controllers}\n")
    (top / "cgroup.subtree_control").write_text("")
    (top / "cgroup.procs").write_text(processes)
    return top


def one_group(top: Path) -> Path:
    (found,) = (path for path in top.glob("command-*") if (path / "cgroup.procs").exists())
    return found


def test_a_unit_with_a_subgroup_has_groups_for_commands_beside_it(tmp_path: Path) -> None:
    """`DelegateSubgroup=shoal`: the limits are those of the command, and nothing is swapped out of them."""
    groups = CommandGroups.find(tree(tmp_path) / SUBGROUP)
    assert groups == CommandGroups(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    made = groups.create(SMALL).path
    assert made.parent == tmp_path
    assert {path.name: path.read_text() for path in made.iterdir()} == {
        "memory.max": str(SMALL.memory_bytes * 11 // 10),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": str(2 * SMALL.processes + 3),
    }


def test_a_process_alone_in_its_group_makes_room_for_others(tmp_path: Path) -> None:
    """A systemd that does not know DelegateSubgroup leaves the runner in the group itself."""
    tree(tmp_path, processes=f"{os.getpid()}\n")
    (tmp_path / SUBGROUP).mkdir()
    (tmp_path / SUBGROUP / "cgroup.procs").touch()
    assert CommandGroups.find(tmp_path) == CommandGroups(tmp_path)
    assert (tmp_path / SUBGROUP / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize(
    "given",
    [
        {"processes": f"{os.getpid()}\n1\n"},
        {"processes": "1\n"},
        {"processes": f"{os.getpid()}\n", "controllers": "cpu memory"},
        {"processes": f"{os.getpid()}\n", "controllers": "hugetlb"},
    ],
)
def test_where_others_are_or_a_controller_is_missing_nothing_is_moved(tmp_path: Path, given: dict[str, str]) -> None:
    """A person's shell must not be moved about; then the census alone limits."""
    assert CommandGroups.find(tree(tmp_path, **given)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cgroup.controllers",
        "cgroup.procs",
        "cgroup.subtree_control",
    ]
    assert CommandGroups.find(tmp_path / "away") is None


async def test_a_command_is_in_its_group_before_it_runs_and_its_end_has_the_reason(
    folder: Path, tmp_path: Path
) -> None:
    """The kernel kills everything at once, bubblewrap's own process too: that is `memory`, and not a broken sandbox."""
    await tier("bubblewrap")
    sandbox = await Bubblewrap.find()
    sandbox._groups = CommandGroups(tree(tmp_path))
    assert sandbox.limited_by == "cgroup"
    running = asyncio.create_task(sandbox.run(command(folder, "touch began; sleep 100")))
    await eventually((folder / "began").exists, SLOW_S, what="the command")
    group = one_group(tmp_path)
    first = int((group / "cgroup.procs").read_text())
    (group / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    os.kill(first, signal.SIGKILL)
    assert (await running).ended == "memory"
    assert (group / "cgroup.kill").read_text() == "1"


async def test_a_group_that_cannot_be_made_or_entered_is_an_error(folder: Path, tmp_path: Path) -> None:
    """No command runs without the limits that presence promises."""
    await tier("bubblewrap")
    sandbox = await Bubblewrap.find()
    sandbox._groups = CommandGroups(tmp_path / "away")
    with pytest.raises(SandboxBroken, match="a control group cannot be made"):
        await sandbox.run(command(folder, "touch ran"))
    assert not (folder / "ran").exists()


FULL = {
    "memory of many": ENDED["memory of many"][0],
    "files in memory": "for i in $(seq 18); do dd if=/dev/zero of=/tmp/$i bs=1M count=7 2>&-; done; sleep 50",
}


@pytest.mark.parametrize("attack", FULL)
async def test_the_kernel_ends_a_command_that_takes_too_much(
    folder: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the census, too. Only where this process has a group: `systemd-run -p Delegate=yes`, or a container."""
    if (groups := CommandGroups.find()) is None:
        pytest.skip("this process has no control group of its own (systemd: Delegate=)")
    await tier("bubblewrap")
    sandbox = await Bubblewrap.find()
    assert sandbox.limited_by == "cgroup"
    monkeypatch.setattr("worker.sandbox.bubblewrap_process._measure", lambda *_: 60.0)
    limits = msgspec.structs.replace(SMALL, memory_bytes=64 * MIB)
    finished = await sandbox.run(command(folder, FULL[attack], limits))
    assert finished.ended == "memory", finished
    assert (await sandbox.run(command(folder, "echo alive"))).output == b"alive\n"
    assert list(groups.folder.glob("command-*")) == []
