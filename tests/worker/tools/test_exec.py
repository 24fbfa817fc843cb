"""exec as a model meets it: results, limits, quota, copies, and what ends it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil
import pytest

from shared.errors import ToolFailed
from tests.helpers.wait import eventually
from tests.worker.sandbox.conftest import bubblewrap, folder
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.guards.folder import Quota
from worker.guards.workspace import Workspaces
from worker.sandbox.command import CommandLimits, Sandbox
from worker.tools.exec import Exec, ExecArguments

__all__ = ["bubblewrap", "folder"]
pytestmark = pytest.mark.timeout(180)

SLOW_S = 30.0
MIB = 1024 * 1024
ROOT = Path(__file__).parents[3]


class Held:
    """A turn's hold that a test ends."""

    token = 7
    fence = "turn"
    folder = ""

    def __init__(self) -> None:
        self.doubtful = asyncio.Event()

    def mark_read(self) -> None:
        return

    async def until_doubtful(self) -> None:
        await self.doubtful.wait()

    async def copies(self) -> Mapping[str, bytes]:
        return {"MEMORY.md": b"fact\n", "HISTORY.md": b"log\n"}


def built(sandbox: Sandbox, folder: Path, quota: Quota | None = None, limits: CommandLimits | None = None) -> Exec:
    return Exec(sandbox, Workspaces(folder.parent, quota), limits=limits or CommandLimits(wall_s=60))


def context(held: Held | None = None) -> ToolContext:
    return ToolContext(session="web:ada/main", turn=3, call_id="c1", outside=held or Held())


async def test_a_command_answers_its_exit_code_and_its_output(bubblewrap: Sandbox, folder: Path) -> None:
    """Both streams in order, without escape codes; a failure of the command is a result, not an error."""
    tool = built(bubblewrap, folder)
    line = "echo one; echo two >&2; printf '\\033[31mthree\\033[0m\\n'; cat MEMORY.md; exit 3"
    result = await tool.run(ExecArguments(line), context())
    assert result == "exit code 3\none\ntwo\nthree\nfact\n"
    assert await tool.run(ExecArguments("true"), context()) == "exit code 0\n(no output)"


async def test_files_stay_for_the_next_command_and_the_file_tools(bubblewrap: Sandbox, folder: Path) -> None:
    """The workspace is the same one; what is odd in it is refused by the file tools."""
    tool = built(bubblewrap, folder)
    await tool.run(ExecArguments("echo kept >note; mkfifo pipe; ln -s /etc/passwd out; chmod 000 note"), context())
    assert "kept" in await tool.run(ExecArguments("chmod 600 note; cat note"), context())
    workspace = Workspaces(folder.parent).workspace_of("web:ada/main")
    assert await workspace.read_file("note") == b"kept\n"
    for odd in ("pipe", "out"):
        with pytest.raises(ToolFailed):
            await workspace.read_file(odd)
    assert [entry.path for entry in await workspace.list_entries()] == ["note"]


@pytest.mark.parametrize(
    ("line", "limits", "expected"),
    [
        ("echo begun; sleep 100", CommandLimits(wall_s=2), "more than 2 s"),
        ("yes", CommandLimits(output_bytes=1000), "more than 1,000 bytes"),
        ("while :; do :; done", CommandLimits(cpu_s=1), "more than 1 s of processor time"),
    ],
)
async def test_a_command_over_a_limit_says_what_to_do(
    bubblewrap: Sandbox, folder: Path, line: str, limits: CommandLimits, expected: str
) -> None:
    """The model reads the number and what would help."""
    call = ToolCallRequest("c1", "exec", {"command": line}, "")
    outcome = await Toolbox([built(bubblewrap, folder, limits=limits)]).call(call, context())
    assert outcome.outcome == "failed"
    assert expected in outcome.content


async def test_the_quota_holds_against_commands(bubblewrap: Sandbox, folder: Path) -> None:
    """Over it the command is ended, and of what it wrote the newest goes, also where it hid it; older files stay."""
    tool = built(bubblewrap, folder, Quota(8 * MIB, 100))
    await tool.run(ExecArguments("echo old >old"), context())
    hide = "mkdir -p shut; dd if=/dev/zero of=shut/b bs=1M count=6; chmod 000 shut; dd if=/dev/zero of=c bs=1M count=6"
    for line in (hide, "for n in $(seq 300); do : >f$n; done; sleep 3", f"mkdir -p {'d/' * 60}; sleep 3"):
        with pytest.raises(ToolFailed, match=r"allowed|over its quota|measured"):
            await tool.run(ExecArguments(line), context())
        used = await Workspaces(folder.parent, Quota(8 * MIB, 100)).workspace_of("web:ada/main").measure()
        assert not used.over(Quota(8 * MIB, 100))
        assert "old" in await tool.run(ExecArguments("cat old"), context())


@pytest.mark.parametrize("writable", [True, False])
async def test_commands_run_in_a_folder_of_the_operators(bubblewrap: Sandbox, folder: Path, writable: bool) -> None:
    """Nothing gets another owner or is put there, a large one has no quota, and only the chat's own is written."""
    site = folder.parent.parent / "site"
    site.mkdir()
    (site / "old").write_text("old")
    (site / "old").chmod(0o640)
    owner = 4242 if os.geteuid() == 0 else os.geteuid()
    for one in (site, site / "old"):
        os.chown(one, owner, -1)
    spaces = Workspaces(folder.parent, Quota(MIB, 20), folders={"site": (site, writable)})
    tool, held = Exec(bubblewrap, spaces, limits=CommandLimits(wall_s=60), skill_files=lambda: {"a/b": b"x"}), Held()
    held.folder = "site"
    line = "ls -A; cat old; (echo new >old; dd if=/dev/zero of=big bs=1M count=4) 2>&1 | tail -n 1"
    result = await tool.run(ExecArguments(line), context(held))
    assert result.startswith("exit code 0\nold\nold")
    assert ("Read-only file system" in result) is not writable
    assert sorted(one.name for one in site.iterdir()) == (["big", "old"] if writable else ["old"])
    assert (site / "old").read_text() == ("new\n" if writable else "old")
    assert {one.stat().st_uid for one in (site, *site.iterdir())} == {owner}
    if writable:
        await spaces.workspace_of("web:ada/main", "site").write_file("pages/new", b"new")
        await tool.run(ExecArguments("echo more >>pages/new; echo >pages/next"), context(held))
        assert (site / "pages" / "new").read_text() == "newmore\n"


async def test_commands_in_many_chats_stay_within_the_limit_of_their_person(bubblewrap: Sandbox, folder: Path) -> None:
    """What one wrote beyond it is gone; who has no room may still delete, and gets it back by that."""
    tool = built(bubblewrap, folder, Quota(8 * MIB, 100, person_bytes=10 * MIB))
    chats = [msgspec.structs.replace(context(), session=f"web:ada/{n}") for n in range(3)]
    fill = ExecArguments("dd if=/dev/zero of=$RANDOM bs=1M count=4 2>&1; true")
    for chat in chats[:2]:
        assert "exit code 0" in await tool.run(fill, chat)
    with pytest.raises(ToolFailed, match="workspaces of this person are over their limit together"):
        await tool.run(fill, chats[2])
    assert "exit code 0" in await tool.run(ExecArguments("rm -f [0-9]*"), chats[0])
    assert "exit code 0" in await tool.run(fill, chats[2])
    assert sum(path.stat().st_size for path in folder.parent.glob("*/[0-9]*")) <= 10 * MIB


async def test_a_turn_in_doubt_ends_its_command(bubblewrap: Sandbox, folder: Path) -> None:
    """Past three quarters of the lease nothing runs any more, and the model is told what that means."""
    tool, held = built(bubblewrap, folder), Held()
    mark = f"7654{os.getpid() % 100000}"
    running = asyncio.create_task(
        tool.run(ExecArguments(f"setsid -f sleep {mark}; touch began; sleep 100"), context(held))
    )
    await eventually(lambda: list(folder.parent.glob("*/began")), SLOW_S, what="the command")
    held.doubtful.set()
    with pytest.raises(ToolFailed, match="not certain that this worker still has the turn"):
        await running
    assert not [one for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]


CHILD = """
import asyncio, sys
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import SandboxCommand
async def main():
    sandbox = await Bubblewrap.find()
    line = f"setsid -f sleep {sys.argv[2]}; touch began; sleep 1000"
    await sandbox.run(SandboxCommand(what=line, folder=sys.argv[1], session="mine"))
asyncio.run(main())
"""


async def test_a_killed_worker_leaves_no_process(bubblewrap: Sandbox, folder: Path) -> None:
    """SIGKILL of the worker ends its commands, also what they put into a session of its own: by the kernel."""
    mark = f"6543{os.getpid() % 100000}"
    worker = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), mark], cwd=ROOT)

    def left() -> list[int]:
        found = psutil.process_iter(["cmdline"])
        return [one.pid for one in found if mark in (one.info["cmdline"] or []) and one.pid != worker.pid]

    try:
        await eventually((folder / "began").exists, SLOW_S, what="the command")
        assert left()
    finally:
        worker.kill()
        worker.wait()
    await eventually(lambda: not left(), SLOW_S, what="the end of all of it")
